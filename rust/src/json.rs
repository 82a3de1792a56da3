//! JSON -> values of templates, as `json.loads` of Python reads it.

use aho_corasick::AhoCorasick;
use minijinja::value::Value;

/// Where a string spells a special token, the first character of it is moved into Unicode's last private plane, so that
/// a template copies it and nothing takes it for the token: see `Spelled`.
const PLANE: u32 = 0x10_0000;

/// Recognises special tokens in the strings of a conversation.
pub struct Spelled {
    tokens: Option<AhoCorasick>,
}

impl Spelled {
    pub fn new(tokens: &[&str]) -> Result<Spelled, String> {
        let tokens: Vec<&str> = tokens.iter().copied().filter(|token| !token.is_empty()).collect();
        if let Some(token) = tokens.iter().find(|token| token.chars().next().is_some_and(|c| c as u32 > 0xfffd)) {
            return Err(format!("special token '{token}' begins with a character above U+FFFD"));
        }
        let built = AhoCorasick::new(&tokens).map_err(|error| error.to_string())?;
        Ok(Spelled { tokens: (!tokens.is_empty()).then_some(built) })
    }

    /// `text` with the first character of every special token in it moved; None: there is none.
    fn hidden(&self, text: &str) -> Result<Option<String>, String> {
        let Some(tokens) = &self.tokens else { return Ok(None) };
        let mut begins: Vec<usize> = tokens.find_overlapping_iter(text).map(|found| found.start()).collect();
        if begins.is_empty() {
            return Ok(None);
        }
        begins.sort_unstable();
        begins.dedup();
        if text.chars().any(|c| c as u32 >= PLANE) {
            return Err("a text spells a special token and has characters above U+FFFFF".into());
        }
        let mut out = String::with_capacity(text.len() + 4 * begins.len());
        let mut done = 0;
        for begin in begins {
            out.push_str(&text[done..begin]);
            let first = text[begin..].chars().next().unwrap_or('\0');
            out.extend(char::from_u32(PLANE + first as u32));
            done = begin + first.len_utf8();
        }
        out.push_str(&text[done..]);
        Ok(Some(out))
    }

    fn value(&self, text: String) -> Result<Value, String> {
        Ok(Value::from(self.hidden(&text)?.unwrap_or(text)))
    }
}

/// `text` with hidden characters as they were, and the byte at which each is. `begins` grows.
pub fn shown(text: String, begins: &mut Vec<u64>) -> String {
    if !text.as_bytes().contains(&0xf4) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c as u32 >= PLANE {
            begins.push(out.len() as u64);
        }
        out.push(char::from_u32((c as u32).checked_sub(PLANE).unwrap_or(c as u32)).unwrap_or(c));
    }
    out
}

/// Whether a text has characters that `shown` would change.
fn has_private(text: &str) -> bool {
    text.as_bytes().contains(&0xf4) && text.chars().any(|c| c as u32 >= PLANE)
}

/// `text` with the characters at `begins` hidden, which is what `shown` undoes.
pub fn hide(text: &str, begins: &[u64]) -> String {
    let mut out = String::with_capacity(text.len() + 4 * begins.len());
    let mut done = 0;
    for &begin in begins {
        let begin = begin as usize;
        out.push_str(&text[done..begin]);
        let first = text[begin..].chars().next().unwrap_or('\0');
        out.extend(char::from_u32(PLANE + first as u32));
        done = begin + first.len_utf8();
    }
    out.push_str(&text[done..]);
    out
}

const MAX_DEPTH: usize = 256;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    spelled: Option<&'a Spelled>,
    /// Whether a string has characters of the private plane itself.
    has_private: bool,
    has_hidden: bool,
}

/// `text` as a value, and whether that has hidden characters. `spelled`: hides special tokens in strings and keys.
pub fn read(text: &str, spelled: Option<&Spelled>) -> Result<(Value, bool), String> {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0, spelled, has_private: false, has_hidden: false };
    let value = reader.value(0).map_err(|what| format!("JSON: {what} at byte {}", reader.at))?;
    reader.space();
    if reader.at != reader.bytes.len() {
        return Err(format!("JSON: more than one value at byte {}", reader.at));
    }
    if reader.has_private && reader.has_hidden {
        return Err("the chat spells a special token and has characters above U+FFFFF".into());
    }
    Ok((value, reader.has_hidden))
}

impl Reader<'_> {
    fn space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: u8) -> bool {
        self.space();
        let found = self.bytes.get(self.at) == Some(&wanted);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, String> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err("no value".into());
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} values inside each other"));
        }
        self.space();
        match self.bytes.get(self.at) {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                let text = self.string()?;
                self.text_value(text)
            }
            Some(b't') => self.word("true", Value::from(true)),
            Some(b'f') => self.word("false", Value::from(false)),
            Some(b'n') => self.word("null", Value::from(())),
            Some(b'N') => self.word("NaN", Value::from(f64::NAN)),
            Some(b'I') => self.word("Infinity", Value::from(f64::INFINITY)),
            Some(b'-') if self.bytes[self.at..].starts_with(b"-I") => self.word("-Infinity", Value::from(f64::NEG_INFINITY)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err("no value".into()),
        }
    }

    fn text_value(&mut self, text: String) -> Result<Value, String> {
        let Some(spelled) = self.spelled else { return Ok(Value::from(text)) };
        self.has_private |= has_private(&text);
        let length = text.len();
        let value = spelled.value(text)?;
        self.has_hidden |= value.as_str().is_some_and(|text| text.len() != length);
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, String> {
        let begin = self.at;
        while matches!(self.bytes.get(self.at), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.bytes[begin..self.at]).unwrap_or_default();
        if text.contains(['.', 'e', 'E']) {
            return text.parse::<f64>().map(Value::from).map_err(|_| "not a number".into());
        }
        if let Ok(small) = text.parse::<i64>() {
            return Ok(Value::from(small));
        }
        text.parse::<i128>().map(Value::from).map_err(|_| "a whole number of more than 38 digits".into())
    }

    fn array(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut elements = Vec::new();
        if self.take(b']') {
            return Ok(Value::from(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            if self.take(b']') {
                return Ok(Value::from(elements));
            }
            if !self.take(b',') {
                return Err("neither ',' nor ']'".into());
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut members: Vec<(Value, Value)> = Vec::new();
        if self.take(b'}') {
            return Ok(Value::from_iter(members));
        }
        loop {
            self.space();
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err("no key".into());
            }
            let key = self.string()?;
            let key = self.text_value(key)?;
            if !self.take(b':') {
                return Err("no ':'".into());
            }
            let value = self.value(depth + 1)?;
            members.push((key, value));
            if self.take(b'}') {
                return Ok(Value::from_iter(members));
            }
            if !self.take(b',') {
                return Err("neither ',' nor '}'".into());
            }
        }
    }

    fn hex(&mut self) -> Result<u32, String> {
        let digits = self.bytes.get(self.at..self.at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        self.at += 4;
        digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).ok_or_else(|| "not four hexadecimal digits".into())
    }

    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let begin = self.at;
            while !matches!(self.bytes.get(self.at), Some(b'"' | b'\\') | None) {
                self.at += 1;
            }
            out.extend_from_slice(&self.bytes[begin..self.at]);
            let Some(&stop) = self.bytes.get(self.at) else { return Err("a string without an end".into()) };
            self.at += 1;
            if stop == b'"' {
                // The whole text is UTF-8, and strings are cut at ASCII.
                return String::from_utf8(out).map_err(|error| error.to_string());
            }
            let escape = self.bytes.get(self.at).copied().unwrap_or(0);
            self.at += 1;
            out.push(match escape {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'b' => 8,
                b'f' => 12,
                b'"' | b'\\' | b'/' => escape,
                b'u' => {
                    let mut unit = self.hex()?;
                    if (0xd800..0xdc00).contains(&unit) && self.bytes[self.at.min(self.bytes.len())..].starts_with(b"\\u") {
                        self.at += 2;
                        let low = self.hex()?;
                        unit = 0x10000 + ((unit - 0xd800) << 10) + low.wrapping_sub(0xdc00);
                    }
                    let c = char::from_u32(unit).ok_or("half of a surrogate pair")?;
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    continue;
                }
                _ => return Err("an unknown escape".into()),
            });
        }
    }
}
