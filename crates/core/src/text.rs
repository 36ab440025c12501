//! Characters that a terminal does not show, or that change how it shows others: a name with them looks like another one.

/// Whether a character is a control character, has no width, or changes the direction or the lines of text.
pub fn is_hidden(c: char) -> bool {
    let formats = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    formats || c.is_control()
}
