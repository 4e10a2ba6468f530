//! The form of the login page.
//!
//! Pure.

use sluice_contract::RunId;

/// Maximum number of bytes of a code that is looked up.
const CODE_MAX: usize = 128;

/// Form of the login page.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct LoginForm {
    /// The code.
    pub(super) code: String,
    /// The run whose page is shown next.
    pub(super) run: Option<RunId>,
}

impl LoginForm {
    /// Reads a form. Codes and ids of runs have no character that is encoded.
    #[must_use]
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let (mut code, mut run) = (None, None);
        for pair in std::str::from_utf8(body).ok()?.split('&') {
            match pair.split_once('=')? {
                ("code", value) if code.is_none() => code = Some(value.trim_matches('+').to_owned()),
                ("run", "") if run.is_none() => {}
                ("run", value) if run.is_none() => run = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        let is_code = |code: &String| {
            (1..=CODE_MAX).contains(&code.len())
                && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        Some(Self { code: code.filter(is_code)?, run })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_a_code_and_perhaps_a_run() {
        let parsed = |text: &str| LoginForm::parse(text.as_bytes()).map(|form| (form.code, form.run.is_some()));
        let run = "r_00000000000000000000";
        assert_eq!(parsed("code=slc_ab"), Some(("slc_ab".to_owned(), false)));
        assert_eq!(parsed(&format!("code=slc_ab&run={run}")), Some(("slc_ab".to_owned(), true)));
        assert_eq!(parsed("run=&code=+slc_ab+"), Some(("slc_ab".to_owned(), false)), "a code that was pasted");
        for text in
            ["", "code", "code=", "code=a&code=b", "code=%3Cb", "code=a&x=b", "run=r", "code=a&run=../x", "code=<b>"]
        {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
