//! The second person of a merge, or of a raised cost.
//!
//! Pure.

use crate::principal::Principal;
use crate::stored_request::RunCreator;

/// Returns true if a principal is another person than the owner of a run and its creator. All principals of one owner count as
/// one person, and an admin who has created a run for another owner is not a second one. A run without a known creator has no
/// second person.
pub(crate) fn is_second_person(principal: &Principal, owner: &str, creator: Option<&RunCreator>) -> bool {
    let is_other = |creator: &RunCreator| principal.owner != creator.owner && principal.id != creator.principal;
    principal.owner != owner && creator.is_some_and(is_other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Role;

    #[test]
    fn one_person_with_two_tokens_is_not_two() {
        let principal =
            |id: &str, owner: &str| Principal { id: id.to_owned(), ..Principal::for_tests(Role::Admin, owner, &[]) };
        let creator = |id: &str, owner: &str| RunCreator { principal: id.to_owned(), owner: owner.to_owned() };
        for (merges, creator, expected) in [
            (principal("token:2", "ops"), Some(creator("token:1", "alice")), true),
            (principal("token:1", "alice"), Some(creator("token:1", "alice")), false),
            (principal("token:2", "alice"), Some(creator("token:1", "alice")), false),
            // An admin has created the run for alice.
            (principal("token:2", "ops"), Some(creator("token:2", "ops")), false),
            (principal("token:3", "ops"), Some(creator("token:2", "ops")), false),
            (principal("token:2", "other"), Some(creator("token:2", "ops")), false),
            (principal("uid:0", "root"), Some(creator("token:2", "ops")), true),
            (principal("token:3", "alice"), Some(creator("token:2", "ops")), false),
            (principal("token:2", "ops"), None, false),
        ] {
            assert_eq!(is_second_person(&merges, "alice", creator.as_ref()), expected, "{merges:?} {creator:?}");
        }
    }
}
