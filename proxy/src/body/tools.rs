//! Tools: only those that the agent itself runs.
//!
//! `mcp`, `web_search`, `code_interpreter` and similar tools make the provider or the gateway call out. A tool is known
//! by its `type`, or, without one, by members that only an agent's own tool has. Gemini also takes tools without a
//! type, such as `{"googleSearch":{}}`. LiteLLM runs some tools that it knows only by name.

use super::schema::SchemaUse;
use super::shape::{MemberShapes, Shape};

/// A list of tools. A namespace holds tools that are checked like those at the top.
pub(super) static TOOLS: Shape = Shape::List(&TOOL);

static TOOL: Shape = Shape::Tool(MEMBERS);

static MEMBERS: MemberShapes = &[
    ("type", Shape::Scalar),
    ("function", Shape::Object(FUNCTION)),
    ("name", Shape::ToolName),
    ("description", Shape::Scalar),
    ("parameters", Shape::Schema(SchemaUse::Tool)),
    ("input_schema", Shape::Schema(SchemaUse::Tool)),
    ("output_schema", Shape::Schema(SchemaUse::Tool)),
    ("strict", Shape::Scalar),
    ("cache_control", Shape::Object(CACHE_CONTROL)),
    ("custom", Shape::Object(CUSTOM)),
    ("format", Shape::Object(FORMAT)),
    ("tools", Shape::List(&TOOL)),
    ("defer_loading", Shape::Scalar),
    ("input_examples", Shape::Any),
    ("allowed_callers", Shape::List(&Shape::Scalar)),
    ("eager_input_streaming", Shape::Scalar),
    ("execution", Shape::Word("client")),
    ("environment", Shape::Object(&[("type", Shape::Word("local")), ("skills", Shape::Any)])),
    ("display_width_px", Shape::Scalar),
    ("display_height_px", Shape::Scalar),
    ("display_number", Shape::Scalar),
    ("display_width", Shape::Scalar),
    ("display_height", Shape::Scalar),
    ("enable_zoom", Shape::Scalar),
    ("max_characters", Shape::Scalar),
];

const FUNCTION: MemberShapes = &[
    ("name", Shape::ToolName),
    ("description", Shape::Scalar),
    ("parameters", Shape::Schema(SchemaUse::Tool)),
    ("output_schema", Shape::Schema(SchemaUse::Tool)),
    ("strict", Shape::Scalar),
    ("cache_control", Shape::Object(CACHE_CONTROL)),
];

const CUSTOM: MemberShapes =
    &[("name", Shape::ToolName), ("description", Shape::Scalar), ("format", Shape::Object(FORMAT))];

const FORMAT: MemberShapes = &[
    ("type", Shape::Scalar),
    ("syntax", Shape::Scalar),
    ("definition", Shape::Scalar),
    ("grammar", Shape::Object(&[("syntax", Shape::Scalar), ("definition", Shape::Scalar)])),
];

/// Marks for Anthropic's prompt cache.
pub(super) const CACHE_CONTROL: MemberShapes =
    &[("type", Shape::Scalar), ("ttl", Shape::Scalar), ("scope", Shape::Scalar)];

/// `tool_choice`: the way of choosing a tool, and the tool.
pub(super) const CHOICE: MemberShapes = &[
    ("type", Shape::Scalar),
    ("name", Shape::ToolName),
    ("function", Shape::Object(NAMED)),
    ("custom", Shape::Object(NAMED)),
    ("mode", Shape::Scalar),
    ("tools", Shape::List(&Shape::Object(CHOSEN))),
    ("allowed_tools", Shape::Object(&[("mode", Shape::Scalar), ("tools", Shape::List(&Shape::Object(CHOSEN)))])),
    ("disable_parallel_tool_use", Shape::Scalar),
];

/// `function_call`, the older form.
pub(super) const NAMED: MemberShapes = &[("name", Shape::ToolName)];

const CHOSEN: MemberShapes = &[
    ("type", Shape::Scalar),
    ("name", Shape::ToolName),
    ("namespace", Shape::Scalar),
    ("server_label", Shape::Scalar),
    ("function", Shape::Object(NAMED)),
    ("custom", Shape::Object(NAMED)),
];
