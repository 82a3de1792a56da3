//! What Python makes of values: `str`, `repr`, `json.dumps`, `strftime`, and the methods of its strings, lists and
//! dictionaries that chat templates call.

use std::fmt::Write;

use std::sync::Arc;

use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, Value, ValueKind};
use minijinja::{Error, ErrorKind};

pub fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// A list that is printed as a tuple.
#[derive(Debug)]
struct Tuple(Vec<Value>);

impl Object for Tuple {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

pub fn tuple(elements: Vec<Value>) -> Value {
    Value::from_object(Tuple(elements))
}

/// `repr(float)`: the shortest digits, positional between 1e-4 and 1e16.
pub fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let text = format!("{value}");
    if text.contains('.') {
        text
    } else {
        text + ".0"
    }
}

fn number_text(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float_text)
}

/// `str(value)` as a template writes it: nothing for a value that is undefined.
pub fn str_of(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => value.as_str().unwrap_or_default().to_string(),
        ValueKind::Undefined => String::new(),
        _ => repr(value),
    }
}

pub fn repr(value: &Value) -> String {
    let mut out = String::new();
    write_repr(value, &mut out, 0);
    out
}

/// Values nest no deeper than the JSON that they come from, and what a template builds around them.
const MAX_DEPTH: usize = 1000;

fn write_repr(value: &Value, out: &mut String, depth: usize) {
    if depth > MAX_DEPTH {
        out.push_str("...");
        return;
    }
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number_text(value)),
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.downcast_object_ref::<Tuple>();
            out.push(if tuple.is_some() { '(' } else { '[' });
            for (i, element) in value.try_iter().into_iter().flatten().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr(&element, out, depth + 1);
            }
            if tuple.is_some_and(|tuple| tuple.0.len() == 1) {
                out.push(',');
            }
            out.push(if tuple.is_some() { ')' } else { ']' });
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter().into_iter().flatten().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr(&key, out, depth + 1);
                out.push_str(": ");
                write_repr(&value.get_item(&key).unwrap_or_default(), out, depth + 1);
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
}

fn write_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            _ if !printable(c) => {
                let code = c as u32;
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
            _ => out.push(c),
        }
    }
    out.push(quote);
}

/// `str.isprintable` of one character, but for those that no version of Unicode assigns.
fn printable(c: char) -> bool {
    !c.is_control()
        && (c == ' ' || !is_space(c))
        && !matches!(c as u32, 0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x890..=0x891 | 0x8e2 | 0x180e | 0x200b..=0x200f
            | 0x2028..=0x202e | 0x2060..=0x206f | 0xe000..=0xf8ff | 0xfeff | 0xfff9..=0xfffb | 0xfffe..=0xffff
            | 0x110bd | 0x110cd | 0x1d173..=0x1d17a | 0xe0001 | 0xe0020..=0xe007f | 0xf0000..)
}

/// `str.isspace` of one character.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub sort_keys: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
}

/// `json.dumps`.
pub fn to_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    write_json(value, style, 0, &mut out)?;
    Ok(out)
}

fn new_line(style: &JsonStyle, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn json_key(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_string(),
        ValueKind::None => "null".into(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
        ValueKind::Number => number_text(key),
        kind => return Err(failed(format!("tojson: a key is a {kind}, not a string, number or boolean"))),
    })
}

fn write_json(value: &Value, style: &JsonStyle, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(failed(format!("tojson: more than {MAX_DEPTH} values inside each other")));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => match number_text(value).as_str() {
            "nan" => out.push_str("NaN"),
            "inf" => out.push_str("Infinity"),
            "-inf" => out.push_str("-Infinity"),
            text => out.push_str(text),
        },
        ValueKind::String => write_json_string(value.as_str().unwrap_or_default(), style.ensure_ascii, out),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut empty = true;
            for element in value.try_iter()? {
                if !empty {
                    out.push_str(&style.item_separator);
                }
                empty = false;
                new_line(style, depth + 1, out);
                write_json(&element, style, depth + 1, out)?;
            }
            if !empty {
                new_line(style, depth, out);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            let mut members = Vec::new();
            for key in value.try_iter()? {
                members.push((json_key(&key)?, value.get_item(&key)?));
            }
            if style.sort_keys {
                members.sort_by(|a, b| a.0.cmp(&b.0));
            }
            for (i, (key, member)) in members.iter().enumerate() {
                if i > 0 {
                    out.push_str(&style.item_separator);
                }
                new_line(style, depth + 1, out);
                write_json_string(key, style.ensure_ascii, out);
                out.push_str(&style.key_separator);
                write_json(member, style, depth + 1, out)?;
            }
            if !members.is_empty() {
                new_line(style, depth, out);
            }
            out.push('}');
        }
        kind => return Err(failed(format!("tojson: a value is {kind}, which JSON has no form for"))),
    }
    Ok(())
}

fn write_json_string(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            _ if (c as u32) < 0x20 || (ensure_ascii && !(' '..='~').contains(&c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// A day, as `strftime` writes it in the C locale; its time is midnight.
#[derive(Clone, Copy)]
pub struct Date {
    pub year: i64,
    pub month: usize,
    pub day: i64,
}

const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Date {
    /// YYYY-MM-DD of a day that there is.
    pub fn parse(text: &str) -> Option<Date> {
        let parts: Vec<&str> = text.split('-').collect();
        let [year, month, day] = parts[..] else { return None };
        if (year.len(), month.len(), day.len()) != (4, 2, 2) || !text.bytes().all(|b| b == b'-' || b.is_ascii_digit()) {
            return None;
        }
        let date = Date { year: year.parse().ok()?, month: month.parse().ok()?, day: day.parse().ok()? };
        let exists = date.year >= 1 && (1..=12).contains(&date.month) && (1..=date.days_of(date.month)).contains(&date.day);
        exists.then_some(date)
    }

    fn days_of(&self, month: usize) -> i64 {
        match month {
            2 if self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    fn day_of_year(&self) -> i64 {
        (1..self.month).map(|month| self.days_of(month)).sum::<i64>() + self.day
    }

    /// 0: Sunday.
    fn weekday(&self) -> i64 {
        let before = self.year - 1;
        (before * 365 + before / 4 - before / 100 + before / 400 + self.day_of_year()) % 7
    }

    pub fn strftime(&self, format: &str) -> Result<String, Error> {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let unpadded = chars.as_str().starts_with('-');
            if unpadded {
                chars.next();
            }
            let code = chars.next().unwrap_or('%');
            let two = |value: i64| if unpadded { format!("{value}") } else { format!("{value:02}") };
            match code {
                'Y' => out += &format!("{}", self.year),
                'y' => out += &two(self.year % 100),
                'm' => out += &two(self.month as i64),
                'd' => out += &two(self.day),
                'e' => out += &if unpadded { format!("{}", self.day) } else { format!("{:2}", self.day) },
                'j' => out += &if unpadded { format!("{}", self.day_of_year()) } else { format!("{:03}", self.day_of_year()) },
                'H' | 'M' | 'S' => out += &two(0),
                'I' => out += "12",
                'p' => out += "AM",
                'f' => out += "000000",
                'B' => out += MONTHS[self.month - 1],
                'b' | 'h' => out += &MONTHS[self.month - 1][..3],
                'A' => out += DAYS[self.weekday() as usize],
                'a' => out += &DAYS[self.weekday() as usize][..3],
                'w' => out += &format!("{}", self.weekday()),
                'u' => out += &format!("{}", (self.weekday() + 6) % 7 + 1),
                'F' => out += &format!("{}-{:02}-{:02}", self.year, self.month, self.day),
                'D' => out += &format!("{:02}/{:02}/{:02}", self.month, self.day, self.year % 100),
                'T' => out += "00:00:00",
                'R' => out += "00:00",
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'z' | 'Z' => {}
                '%' => out.push('%'),
                _ => return Err(failed(format!("strftime_now: '%{code}' is not supported"))),
            }
        }
        Ok(out)
    }
}

/// The arguments of a method, by position or by name.
struct Arguments<'a> {
    method: &'a str,
    positional: &'a [Value],
    named: Option<Kwargs>,
}

impl<'a> Arguments<'a> {
    fn new(method: &'a str, args: &'a [Value]) -> Result<Arguments<'a>, Error> {
        if !args.last().is_some_and(Value::is_kwargs) {
            return Ok(Arguments { method, positional: args, named: None });
        }
        let (positional, named) = minijinja::value::from_args::<(&[Value], Kwargs)>(args)?;
        Ok(Arguments { method, positional, named: Some(named) })
    }

    fn wrong(&self, i: usize, expected: &str) -> Error {
        failed(format!("{}: argument {} is not {expected}", self.method, i + 1))
    }

    fn at(&self, i: usize, name: &str) -> Option<Value> {
        let named = || self.named.as_ref().and_then(|named| named.peek::<Value>(name).ok());
        self.positional.get(i).cloned().or_else(named).filter(|value| !value.is_undefined())
    }

    fn text(&self, i: usize, name: &str) -> Result<Option<String>, Error> {
        match self.at(i, name) {
            None => Ok(None),
            Some(value) if value.is_none() => Ok(None),
            Some(value) => value.as_str().map(|text| Some(text.to_string())).ok_or_else(|| self.wrong(i, "a string")),
        }
    }

    fn needed_text(&self, i: usize, name: &str) -> Result<String, Error> {
        self.text(i, name)?.ok_or_else(|| self.wrong(i, "a string"))
    }

    fn int(&self, i: usize, name: &str) -> Result<Option<i64>, Error> {
        match self.at(i, name) {
            None => Ok(None),
            Some(value) if value.is_none() => Ok(None),
            Some(value) => i64::try_from(value).map(Some).map_err(|_| self.wrong(i, "a whole number")),
        }
    }
}

fn strip(text: &str, chars: Option<&str>, left: bool, right: bool) -> String {
    let gone = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(gone) } else { text };
    let text = if right { text.trim_end_matches(gone) } else { text };
    text.to_string()
}

pub fn strip_both(text: &str, chars: Option<&str>) -> String {
    strip(text, chars, true, true)
}

fn texts(parts: Vec<&str>) -> Value {
    Value::from(parts.into_iter().map(Value::from).collect::<Vec<Value>>())
}

fn split_space(text: &str, limit: Option<usize>) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        if limit == Some(parts.len()) {
            parts.push(rest.trim_end_matches(is_space));
            return parts;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    parts
}

fn rsplit_space(text: &str, limit: Option<usize>) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        if limit == Some(parts.len()) {
            parts.push(rest.trim_start_matches(is_space));
            break;
        }
        let begin = rest.char_indices().rev().find(|(_, c)| is_space(*c)).map_or(0, |(at, c)| at + c.len_utf8());
        parts.push(&rest[begin..]);
        rest = rest[..begin].trim_end_matches(is_space);
    }
    parts.reverse();
    parts
}

fn split(text: &str, args: &Arguments, from_right: bool) -> Result<Value, Error> {
    let limit = args.int(1, "maxsplit")?.and_then(|limit| usize::try_from(limit).ok());
    let Some(separator) = args.text(0, "sep")? else {
        return Ok(texts(if from_right { rsplit_space(text, limit) } else { split_space(text, limit) }));
    };
    if separator.is_empty() {
        return Err(failed("split: empty separator"));
    }
    let parts: Vec<&str> = match (limit, from_right) {
        (None, _) => text.split(separator.as_str()).collect(),
        (Some(limit), false) => text.splitn(limit + 1, separator.as_str()).collect(),
        (Some(limit), true) => {
            let mut parts: Vec<&str> = text.rsplitn(limit + 1, separator.as_str()).collect();
            parts.reverse();
            parts
        }
    };
    Ok(texts(parts))
}

fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let ends = |c: char| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(ends).unwrap_or(rest.len());
        let width = if rest[end..].starts_with("\r\n") { 2 } else { rest[end..].chars().next().map_or(0, char::len_utf8) };
        parts.push(&rest[..if keep_ends { end + width } else { end }]);
        rest = &rest[end + width..];
    }
    parts
}

/// The part of a text that `start` and `end` of Python choose, in bytes; none where start lies behind the text.
fn window(text: &str, start: Option<i64>, end: Option<i64>) -> Option<(usize, usize)> {
    let count = text.chars().count() as i64;
    let place = |at: i64| if at < 0 { (at + count).max(0) } else { at };
    let (start, end) = (place(start.unwrap_or(0)), place(end.unwrap_or(count)).min(count));
    if start > count {
        return None;
    }
    let byte = |at: i64| text.char_indices().nth(at as usize).map_or(text.len(), |(byte, _)| byte);
    Some((byte(start), byte(end.max(start))))
}

fn find(text: &str, args: &Arguments, from_right: bool) -> Result<i64, Error> {
    let wanted = args.needed_text(0, "sub")?;
    let Some((begin, end)) = window(text, args.int(1, "start")?, args.int(2, "end")?) else { return Ok(-1) };
    let part = &text[begin..end];
    let found = if from_right { part.rfind(&wanted) } else { part.find(&wanted) };
    Ok(found.map_or(-1, |at| text[..begin + at].chars().count() as i64))
}

fn has_affix(text: &str, args: &Arguments, at_start: bool) -> Result<bool, Error> {
    let Some((begin, end)) = window(text, args.int(1, "start")?, args.int(2, "end")?) else { return Ok(false) };
    let part = &text[begin..end];
    let affix = args.at(0, "prefix").ok_or_else(|| args.wrong(0, "a string"))?;
    let one = |affix: &Value| {
        let affix = affix.as_str().ok_or_else(|| args.wrong(0, "a string or a tuple of strings"))?;
        Ok(if at_start { part.starts_with(affix) } else { part.ends_with(affix) })
    };
    if affix.kind() != ValueKind::Seq {
        return one(&affix);
    }
    for element in affix.try_iter()? {
        if one(&element)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn replace(text: &str, args: &Arguments) -> Result<String, Error> {
    let (old, new) = (args.needed_text(0, "old")?, args.needed_text(1, "new")?);
    Ok(match args.int(2, "count")?.and_then(|count| usize::try_from(count).ok()) {
        Some(count) => text.replacen(&old, &new, count),
        None => text.replace(&old, &new),
    })
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars.as_str().to_lowercase().chars()).collect())
}

fn title(text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphabetic();
    }
    out
}

fn padded(text: &str, args: &Arguments, left: bool, right: bool) -> Result<String, Error> {
    let width = args.int(0, "width")?.ok_or_else(|| args.wrong(0, "a whole number"))?;
    let fill = args.text(1, "fillchar")?.unwrap_or_else(|| " ".into());
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars().count());
    if missing > MAX_PADDING {
        return Err(failed(format!("{}: wider than {MAX_PADDING}", args.method)));
    }
    let before = match (left, right) {
        (true, true) => missing / 2 + (missing & usize::try_from(width).unwrap_or(0) & 1),
        (true, false) => missing,
        _ => 0,
    };
    Ok(fill.repeat(before) + text + &fill.repeat(missing - before))
}

const MAX_PADDING: usize = 1 << 16;

fn partition(text: &str, args: &Arguments, from_right: bool) -> Result<Value, Error> {
    let separator = args.needed_text(0, "sep")?;
    let found = if from_right { text.rsplit_once(separator.as_str()) } else { text.split_once(separator.as_str()) };
    let parts = match (found, from_right) {
        (Some((before, after)), _) => [before, &separator, after],
        (None, false) => [text, "", ""],
        (None, true) => ["", "", text],
    };
    Ok(tuple(parts.into_iter().map(Value::from).collect()))
}

fn string_method(text: &str, method: &str, args: &Arguments) -> Result<Value, Error> {
    let all = |test: fn(char) -> bool| Value::from(!text.is_empty() && text.chars().all(test));
    Ok(match method {
        "strip" => Value::from(strip(text, args.text(0, "chars")?.as_deref(), true, true)),
        "lstrip" => Value::from(strip(text, args.text(0, "chars")?.as_deref(), true, false)),
        "rstrip" => Value::from(strip(text, args.text(0, "chars")?.as_deref(), false, true)),
        "split" => split(text, args, false)?,
        "rsplit" => split(text, args, true)?,
        "splitlines" => texts(split_lines(text, args.at(0, "keepends").is_some_and(|keep| keep.is_true()))),
        "partition" => partition(text, args, false)?,
        "rpartition" => partition(text, args, true)?,
        "startswith" => Value::from(has_affix(text, args, true)?),
        "endswith" => Value::from(has_affix(text, args, false)?),
        "removeprefix" => Value::from(text.strip_prefix(args.needed_text(0, "prefix")?.as_str()).unwrap_or(text)),
        "removesuffix" => Value::from(text.strip_suffix(args.needed_text(0, "suffix")?.as_str()).unwrap_or(text)),
        "replace" => Value::from(replace(text, args)?),
        "find" => Value::from(find(text, args, false)?),
        "rfind" => Value::from(find(text, args, true)?),
        "index" | "rindex" => match find(text, args, method == "rindex")? {
            -1 => return Err(failed("substring not found")),
            at => Value::from(at),
        },
        "count" => {
            let wanted = args.needed_text(0, "sub")?;
            let (begin, end) = window(text, args.int(1, "start")?, args.int(2, "end")?).unwrap_or((0, 0));
            Value::from(text[begin..end].matches(wanted.as_str()).count())
        }
        "join" => {
            let mut out = String::new();
            let list = args.at(0, "iterable").ok_or_else(|| args.wrong(0, "a list"))?;
            for (i, element) in list.try_iter()?.enumerate() {
                if i > 0 {
                    out += text;
                }
                out += element.as_str().ok_or_else(|| failed(format!("join: element {i} is not a string")))?;
            }
            Value::from(out)
        }
        "lower" | "casefold" => Value::from(text.to_lowercase()),
        "upper" => Value::from(text.to_uppercase()),
        "capitalize" => Value::from(capitalize(text)),
        "title" => Value::from(title(text)),
        "ljust" => Value::from(padded(text, args, false, true)?),
        "rjust" => Value::from(padded(text, args, true, false)?),
        "center" => Value::from(padded(text, args, true, true)?),
        "isspace" => all(is_space),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isdigit" | "isnumeric" | "isdecimal" => all(char::is_numeric),
        "isascii" => Value::from(text.is_ascii()),
        "isupper" => Value::from(text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)),
        "islower" => Value::from(text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)),
        _ => return Err(unknown("str", method)),
    })
}

fn unknown(kind: &str, method: &str) -> Error {
    Error::new(ErrorKind::UnknownMethod, format!("'{kind}' has no method '{method}' that a template may call"))
}

pub fn pairs(map: &Value) -> Result<Vec<(Value, Value)>, Error> {
    map.try_iter()?.map(|key| map.get_item(&key).map(|value| (key, value))).collect()
}

/// `map[key]`. Short dictionaries find a text faster than any other key, for which they compute a hash.
pub fn member(map: &Value, key: &Value) -> Result<Value, Error> {
    match key.as_str() {
        Some(name) => map.get_attr(name),
        None => map.get_item(key),
    }
}

fn dict_method(map: &Value, method: &str, args: &Arguments) -> Result<Value, Error> {
    Ok(match method {
        "get" => {
            let key = args.at(0, "key").unwrap_or_default();
            let found = member(map, &key)?;
            if found.is_undefined() {
                args.at(1, "default").unwrap_or_else(|| Value::from(()))
            } else {
                found
            }
        }
        "items" => Value::from(pairs(map)?.into_iter().map(|(key, value)| tuple(vec![key, value])).collect::<Vec<_>>()),
        "keys" => Value::from(map.try_iter()?.collect::<Vec<_>>()),
        "values" => Value::from(pairs(map)?.into_iter().map(|(_, value)| value).collect::<Vec<_>>()),
        "copy" => map.clone(),
        _ => return Err(unknown("dict", method)),
    })
}

fn list_method(list: &Value, method: &str, args: &Arguments) -> Result<Value, Error> {
    let wanted = args.at(0, "value").unwrap_or_default();
    Ok(match method {
        "count" => Value::from(list.try_iter()?.filter(|element| *element == wanted).count()),
        "index" => Value::from(
            list.try_iter()?.position(|element| element == wanted).ok_or_else(|| failed("index: the value is not in the list"))?,
        ),
        "copy" => list.clone(),
        _ => return Err(unknown("list", method)),
    })
}

/// The methods that a template may call on strings, dictionaries and lists.
pub const METHODS: &[&str] = &[
    "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "partition", "rpartition", "startswith", "endswith",
    "removeprefix", "removesuffix", "replace", "find", "rfind", "index", "rindex", "count", "join", "lower", "casefold", "upper",
    "capitalize", "title", "ljust", "rjust", "center", "isspace", "isalpha", "isalnum", "isdigit", "isnumeric", "isdecimal",
    "isascii", "isupper", "islower", "get", "items", "keys", "values", "copy",
];

pub fn call_method(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let arguments = Arguments::new(method, args)?;
    match value.kind() {
        ValueKind::String => string_method(value.as_str().unwrap_or_default(), method, &arguments),
        ValueKind::Map => dict_method(value, method, &arguments),
        ValueKind::Seq | ValueKind::Iterable => list_method(value, method, &arguments),
        ValueKind::Undefined => Err(Error::new(ErrorKind::UndefinedError, format!("cannot call '{method}' of a value that is undefined"))),
        kind => Err(unknown(&kind.to_string(), method)),
    }
}
