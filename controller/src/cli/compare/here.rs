//! A run of this state directory.

use sluice_state::events::{Direction, EventFilter, EventQuery};
use sluice_state::layout::Layout;
use sluice_state::ledger::{Filter, GroupBy};
use sluice_state::store::Store;

use super::super::database::open_for_queries;
use super::super::error::CommandError;
use super::super::find_run::find_run;
use super::super::host_args::HostArgs;
use super::super::ps::RunView;
use super::super::sandbox_object::{event_of, object_of};
use super::Compared;

/// Maximum number of events in one read.
const PAGE: u32 = 500;

/// The runs of this host.
pub(super) struct Here {
    store: Store,
    layout: Layout,
}

impl Here {
    pub(super) fn open(host: &HostArgs) -> Result<Self, CommandError> {
        let state = host.state_dir()?;
        Ok(Self { store: open_for_queries(&state)?, layout: Layout::at(&state) })
    }

    /// Returns the compared values of a run.
    pub(super) async fn compared(&self, name: &str) -> Result<Compared, CommandError> {
        let failed = |error: &dyn std::error::Error| CommandError::failed(error);
        let run = find_run(&self.store, name).await?;
        let run_id = &run.entry.key.run_id;
        let sandbox = self.store.find_sandbox(None, run_id).await.map_err(|error| failed(&error))?;
        let view = RunView::of(&run, sandbox.as_ref(), &self.layout);
        let filter = Filter { run_id: Some(run_id.to_string()), ..Filter::default() };
        let sums = self.store.usage(GroupBy::Run, filter).await.map_err(|error| failed(&error))?;
        let total = serde_json::to_value(&sums.total).map_err(|error| failed(&error))?;
        let known = sandbox.as_ref().map(|sandbox| Compared::of(&object_of(sandbox)));
        let once = || Compared {
            run: run_id.to_string(),
            state: view.state.clone(),
            attempts: 1,
            #[allow(clippy::cast_precision_loss, reason = "an age is not that large")]
            work_s: Some(view.age_s as f64),
            ..Compared::default()
        };
        let known = known.unwrap_or_else(once).with_sums(&total);
        let mut compared = Compared { exit_code: view.exit_code, model: run.entry.model.clone(), ..known };
        if sandbox.is_some() {
            self.count_events(run_id.as_str(), &mut compared).await?;
        }
        Ok(compared)
    }

    async fn count_events(&self, run_id: &str, compared: &mut Compared) -> Result<(), CommandError> {
        let filter = EventFilter { sandbox_id: Some(run_id.to_owned()), ..EventFilter::default() };
        let mut cursor = Some(0);
        while cursor.is_some() {
            let query =
                EventQuery { filter: filter.clone(), text: None, cursor, direction: Direction::Newer, limit: PAGE };
            let page = self.store.list_events(query).await.map_err(|error| CommandError::failed(&error))?;
            page.events.into_iter().for_each(|event| compared.count(&event_of(event)));
            cursor = page.next_cursor;
        }
        Ok(())
    }
}
