//! Makes images and HTML in Markdown inert: they become text, outside of fenced code.
//!
//! An agent that has read a secret must not be able to make a reader's browser fetch an address with it. `![` becomes `!\[`,
//! and a `<` that could begin a tag becomes `&lt;`.
//!
//! Pure. A fence counts only if every interpretation of the Markdown has one: a list or a quotation that ends also ends its
//! fence, and where that is unclear, code is treated as text. At most one character is buffered, so the result
//! does not depend on how the text was cut.

/// Indentation in columns from which a line cannot open or close a fence.
const INDENTED: usize = 4;
const TAB: usize = 4;
/// Characters of the shortest fence.
const FENCE: usize = 3;

/// A filter of one text.
#[derive(Debug, Default)]
pub(crate) struct Defang {
    /// `!` or `<`, until the next character decides its meaning.
    waiting: Option<char>,
    block: Block,
    line: Line,
}

/// The part of the document that a line is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Block {
    /// Text.
    #[default]
    Text,
    /// Fenced code that began with these characters, after this indentation.
    Code { mark: char, length: usize, columns: usize },
    /// Text, or code in a list or a quotation, which ends with the next line that is not indented.
    UnclearInside,
    /// Text or code, to the end.
    Unclear,
}

/// The present line, as far as it was read.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    columns: usize,
    place: LinePart,
    /// Character of the fence, if the line begins with one.
    mark: Option<char>,
    length: usize,
    /// True if a character other than a blank follows the fence.
    has_info: bool,
    /// True if the text after the fence has a backtick.
    has_backtick: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum LinePart {
    /// Before the first character of a line.
    #[default]
    Indent,
    /// After the mark of a list, or in it; or after a character that may count as a blank.
    Container,
    /// After the mark of a quotation.
    Quotation,
    /// Within the characters of a fence.
    Fence,
    /// After the characters of a fence, or in a line without a fence.
    Rest,
}

impl Defang {
    /// Returns the safe form of a name. A name is not a document: a client shows it within a text, where it cannot
    /// begin code.
    pub(crate) fn name(name: &str) -> String {
        let mut filter = Self { block: Block::Unclear, ..Self::default() };
        filter.push(name) + &filter.finish()
    }

    /// Returns the safe form of the next part of a text.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut safe = String::with_capacity(text.len());
        for character in text.chars() {
            self.write(character, &mut safe);
        }
        safe
    }

    /// Returns the buffered character at the end of the text.
    pub(crate) fn finish(&mut self) -> String {
        self.waiting.take().map(String::from).unwrap_or_default()
    }

    fn write(&mut self, character: char, safe: &mut String) {
        // The first character of a line can end a block, so it comes first.
        self.read(character);
        match (self.waiting.take(), character) {
            (Some('!'), '[') => safe.push_str("!\\"),
            (Some('<'), next) if begins_tag(next) => safe.push_str("&lt;"),
            (Some(waited), _) => safe.push(waited),
            (None, _) => {}
        }
        match character {
            '!' | '<' if !matches!(self.block, Block::Code { .. }) => self.waiting = Some(character),
            _ => safe.push(character),
        }
        if is_end(character) {
            self.end_line();
        }
    }

    fn read(&mut self, character: char) {
        if is_end(character) {
            return;
        }
        let line = &mut self.line;
        match line.place {
            LinePart::Indent => match character {
                ' ' => line.columns += 1,
                '\t' => line.columns += TAB - line.columns % TAB,
                '`' | '~' => self.begin(LinePart::Fence, Some(character)),
                '>' => self.begin(LinePart::Quotation, None),
                _ if may_contain(character) => self.begin(LinePart::Container, None),
                _ => self.begin(LinePart::Rest, None),
            },
            LinePart::Container | LinePart::Quotation => match character {
                '`' | '~' if line.mark == Some(character) => line.length += 1,
                '`' | '~' => (line.mark, line.length) = (Some(character), 1),
                // Further marks, numbers and blanks may be before a fence; any other text may not.
                _ if line.length >= FENCE => {}
                ' ' | '\t' | '>' | '.' | ')' => (line.mark, line.length) = (None, 0),
                _ if may_contain(character) => (line.mark, line.length) = (None, 0),
                _ => line.place = LinePart::Rest,
            },
            LinePart::Fence if line.mark == Some(character) => line.length += 1,
            LinePart::Fence | LinePart::Rest => {
                line.place = LinePart::Rest;
                line.has_info |= !matches!(character, ' ' | '\t');
                line.has_backtick |= character == '`';
            }
        }
    }

    /// Notes the first character of a line after its indentation.
    fn begin(&mut self, place: LinePart, mark: Option<char>) {
        let length = usize::from(mark.is_some());
        self.line = Line { place, mark, length, ..self.line };
        self.block = match self.block {
            // The list that the code may be in has ended here; or there was none.
            Block::Code { columns, .. } if self.line.columns < columns => Block::Unclear,
            Block::UnclearInside if self.line.columns == 0 && place != LinePart::Quotation => Block::Text,
            block => block,
        };
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let is_fence = line.length >= FENCE && line.mark.is_some();
        let is_contained = matches!(line.place, LinePart::Container | LinePart::Quotation);
        self.block = match self.block {
            Block::Code { mark, length, columns } => {
                let closes = is_fence && !is_contained && !line.has_info;
                let closes = closes && line.mark == Some(mark) && line.length >= length;
                match closes {
                    true if line.columns < INDENTED => Block::Text,
                    // The line closes code in a list, but is a part of any other code.
                    true if columns > 0 => Block::Unclear,
                    _ => self.block,
                }
            }
            Block::Text if !is_fence => Block::Text,
            Block::Text if is_contained || line.columns >= INDENTED => Block::UnclearInside,
            Block::Text if line.mark == Some('`') && line.has_backtick => Block::Text,
            Block::Text => Block::Code { mark: line.mark.unwrap_or('`'), length: line.length, columns: line.columns },
            // The line begins code of the document, or it ends the code in a list.
            Block::UnclearInside if is_fence && !is_contained && line.columns < INDENTED => Block::Unclear,
            block => block,
        };
    }
}

fn is_end(character: char) -> bool {
    matches!(character, '\n' | '\r')
}

/// Returns whether a fence may follow this character at the beginning of a line: in a list, or because some readers skip it.
fn may_contain(character: char) -> bool {
    matches!(character, '-' | '*' | '+' | '0'..='9')
        || character.is_control()
        || !(character.is_ascii() || character.is_alphanumeric())
}

/// Returns whether a `<` before this character can begin HTML.
fn begins_tag(character: char) -> bool {
    character.is_ascii_alphabetic() || matches!(character, '/' | '!' | '?')
}

#[cfg(test)]
mod tests;
