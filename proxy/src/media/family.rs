//! Families of models whose images are billed alike, found by the names that the operator gave.

/// Family of models whose images are billed alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Claude before 4.7, except Opus 4.5.
    Claude,
    /// Claude 4.7 and later, Opus 4.5, and any Claude without a version: larger images.
    ClaudeLarge,
    /// OpenAI tiles: gpt-4o, gpt-4.1, gpt-4.5, gpt-4-turbo.
    Gpt4o,
    /// OpenAI tiles: gpt-4o-mini, at some 33 times the tokens.
    Gpt4oMini,
    /// OpenAI tiles: gpt-5, gpt-5-chat, gpt-5.1.
    Gpt5,
    /// OpenAI tiles: o1, o1-pro, o3.
    O3,
    /// OpenAI tiles: computer-use-preview.
    ComputerUse,
    /// OpenAI patches: gpt-4.1-mini, gpt-5-mini.
    Gpt5Mini,
    /// OpenAI patches: gpt-4.1-nano, gpt-5-nano.
    Gpt5Nano,
    /// OpenAI patches: o4-mini, codex-mini.
    O4Mini,
    /// OpenAI patches: gpt-5.2, gpt-5.3-codex.
    Gpt52,
    /// OpenAI patches with `detail: original`: gpt-5.4.
    Gpt54,
    /// OpenAI patches with `detail: original`: gpt-5.4-mini.
    Gpt54Mini,
    /// OpenAI patches with `detail: original`: gpt-5.4-nano.
    Gpt54Nano,
    /// OpenAI patches with `detail: original`: gpt-5.5.
    Gpt55,
    /// OpenAI patches, as many as the image has: gpt-5.6 and gpt-6-astra.
    Gpt56,
    /// Gemini before 3: tiles.
    Gemini2,
    /// Gemini 3: a count by media resolution.
    Gemini3,
    /// Any other model: the dearest of all families. Providers outside of them were not looked at, and one that reads
    /// images of any size unscaled may bill more.
    Unknown,
}

impl Family {
    /// Every family, `Unknown` last.
    pub const ALL: [Self; 19] = [
        Self::Claude,
        Self::ClaudeLarge,
        Self::Gpt4o,
        Self::Gpt4oMini,
        Self::Gpt5,
        Self::O3,
        Self::ComputerUse,
        Self::Gpt5Mini,
        Self::Gpt5Nano,
        Self::O4Mini,
        Self::Gpt52,
        Self::Gpt54,
        Self::Gpt54Mini,
        Self::Gpt54Nano,
        Self::Gpt55,
        Self::Gpt56,
        Self::Gemini2,
        Self::Gemini3,
        Self::Unknown,
    ];

    /// Returns the family that all of a model's names agree on.
    ///
    /// `names` may be the public name, `litellm_params.model`, `model_info.key`, `base_model` and `litellm_provider`. A
    /// name that mentions no maker's model ("fast", "anthropic", "azure/prod-1") says nothing. One that does without
    /// being clear ("gpt-4o-mini-custom"), or two that disagree, make the family unknown. If several deployments have
    /// one public name, call this function for each, and take the dearest result. Leave the public name out where the
    /// provider's own name is known.
    #[must_use]
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut found = None;
        for family in names.into_iter().filter_map(of_name) {
            match found {
                Some(other) if other != family => return Self::Unknown,
                _ => found = Some(family),
            }
        }
        found.unwrap_or(Self::Unknown)
    }
}

/// Words of the makers' models. A name with none of them is the operator's own.
const MAKERS: [&str; 6] = ["claude", "gemini", "gpt", "codex", "computer-use", "chat-latest"];

/// Returns the family of one name; `None` if the name does not mention a maker's model.
fn of_name(name: &str) -> Option<Family> {
    let name = name.to_ascii_lowercase();
    let model = name.rsplit('/').next().unwrap_or(&name);
    // Bedrock: "us.openai.gpt-5.6-sol".
    let model = model.split_once("openai.").map_or(model, |(_, model)| model);
    if let Some(family) = openai(without_date(model)) {
        return Some(family);
    }
    let makers: Vec<&str> = MAKERS.into_iter().filter(|word| name.contains(word)).collect();
    match makers[..] {
        [] => is_o_series(model).then_some(Family::Unknown),
        // LiteLLM's provider, not a model.
        ["gemini"] if name == "gemini" => None,
        ["claude"] => Some(claude(model)),
        ["gemini"] => Some(gemini(model)),
        _ => Some(Family::Unknown),
    }
}

/// Returns true for a name like "o3-deep-research".
fn is_o_series(model: &str) -> bool {
    let mut bytes = model.bytes();
    bytes.next() == Some(b'o') && bytes.next().is_some_and(|byte| byte.is_ascii_digit())
}

/// Returns the name without a date such as "-2024-08-06" at its end.
fn without_date(model: &str) -> &str {
    let Some(cut) = model.len().checked_sub(11).filter(|cut| model.is_char_boundary(*cut)) else {
        return model;
    };
    let (base, date) = model.split_at(cut);
    let is_date = date.bytes().enumerate().all(|(at, byte)| match at {
        0 | 5 | 8 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    if is_date { base } else { model }
}

/// OpenAI's page on images and vision names these models, in copies of spring and autumn 2026, except gpt-4-turbo,
/// which an older copy has, and gpt-5.3-codex, which measurements on OpenAI's forum have. Others of its families
/// (gpt-5-pro, gpt-5-codex, gpt-6-sol) are not on it.
fn openai(model: &str) -> Option<Family> {
    Some(match model {
        "gpt-4o"
        | "chatgpt-4o-latest"
        | "gpt-4o-search-preview"
        | "gpt-4.1"
        | "gpt-4.5-preview"
        | "gpt-4-turbo"
        | "gpt-4-vision-preview"
        | "gpt-4-turbo-vision-preview" => Family::Gpt4o,
        "gpt-4o-mini" | "gpt-4o-mini-search-preview" => Family::Gpt4oMini,
        "gpt-5" | "gpt-5-chat" | "gpt-5-chat-latest" | "gpt-5.1" => Family::Gpt5,
        "o1" | "o1-pro" | "o3" => Family::O3,
        "computer-use-preview" => Family::ComputerUse,
        "gpt-4.1-mini" | "gpt-5-mini" => Family::Gpt5Mini,
        "gpt-4.1-nano" | "gpt-5-nano" => Family::Gpt5Nano,
        "o4-mini" | "codex-mini" | "codex-mini-latest" => Family::O4Mini,
        "gpt-5.2" | "gpt-5.3-codex" => Family::Gpt52,
        "gpt-5.4" => Family::Gpt54,
        "gpt-5.4-mini" => Family::Gpt54Mini,
        "gpt-5.4-nano" => Family::Gpt54Nano,
        "gpt-5.5" => Family::Gpt55,
        "gpt-5.6" | "gpt-5.6-sol" | "gpt-5.6-terra" | "gpt-5.6-luna" | "gpt-6-astra" => Family::Gpt56,
        _ => return None,
    })
}

/// Returns the major and minor version after a word: (4, 5) for "claude-opus-4-5-20251101", (3, 5) for
/// "claude-3.5-sonnet".
fn version(model: &str) -> Option<(u8, u8)> {
    let mut parts = model
        .split(|c: char| !c.is_ascii_alphanumeric())
        .skip_while(|part| part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()));
    // A date does not fit into eight bits.
    let major = parts.next()?.parse().ok()?;
    Some((major, parts.next().and_then(|minor| minor.parse().ok()).unwrap_or(0)))
}

/// Anthropic's page on vision (2026-10): the high resolution for Claude 4.7 and later. A copy of 2026-06 names Opus 4.5
/// too; the larger figure is taken.
fn claude(model: &str) -> Family {
    let Some(at) = model.find("claude") else {
        return Family::Unknown;
    };
    match version(&model[at..]) {
        Some((1..=3, _) | (4, 0..=4 | 6)) => Family::Claude,
        Some((4, 5)) if !model.contains("opus") => Family::Claude,
        _ => Family::ClaudeLarge,
    }
}

/// Google's page on media resolution (2026) has figures for Gemini 2.5 and 3; figures for Gemini 4 were not found.
fn gemini(model: &str) -> Family {
    const OTHERS: [&str; 6] = ["image", "live", "audio", "robotics", "omni", "embedding"];
    let Some(at) = model.find("gemini") else {
        return Family::Unknown;
    };
    match version(&model[at..]) {
        _ if OTHERS.iter().any(|word| model.contains(word)) => Family::Unknown,
        Some((1 | 2, _)) => Family::Gemini2,
        Some((3, _)) => Family::Gemini3,
        _ => Family::Unknown,
    }
}
