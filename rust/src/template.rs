//! The C interface that rust/template.h declares, over the `minijinja` crate.
//!
//! What differs between it and the Jinja of Python is put right in the compiled instructions: operators whose results
//! differ become filters of ours, and so do calls of methods. The same filters count the bytes that strings take, so
//! that a template has a budget for them as it has for instructions.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::ptr;
use std::sync::{Arc, LazyLock};

use minijinja::machinery::{CompiledTemplate, Instruction, Instructions, TemplateConfig, Vm};
use minijinja::value::{Kwargs, Object, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior};

use crate::json::{self, Spelled};
use crate::python::{self, call_method, failed, str_of, Date, JsonStyle, METHODS};
use crate::{caught, free, give, last_error, str_of as text_of, EvenkeelText, REFUSED};

/// Codes of template.h.
const RAISED: i32 = 3;
const NO_DATE: i32 = 4;
const LIMIT: i32 = 5;

/// Levels of macros within macros; a level takes four of the library's.
const MAX_RECURSION: usize = 400;
/// A template's own text.
const MAX_SOURCE_BYTES: usize = 4 << 20;
/// As Jinja's sandbox has it.
const MAX_RANGE: i64 = 100_000;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct EvenkeelTemplateLimits {
    max_work: u64,
    max_string_bytes: u64,
    max_output_bytes: u64,
}

#[repr(C)]
pub struct EvenkeelRendered {
    text: EvenkeelText,
    spelled: *const u64,
    num_spelled: usize,
    generated: *const u64,
    num_generated: usize,
}

pub struct EvenkeelTemplate {
    /// Borrows from `environment`'s strings and `source`, both of which outlive it: fields drop in order.
    compiled: CompiledTemplate<'static>,
    environment: Box<Environment<'static>>,
    _source: Box<str>,
    variables: Vec<(Value, Value)>,
    spelled: Spelled,
    limits: EvenkeelTemplateLimits,
    has_generation: bool,
}

pub struct EvenkeelChat {
    messages: Vec<Value>,
    tools: Value,
    documents: Value,
    /// Whether texts of it have characters that `json::shown` shows again.
    has_hidden: bool,
}

/// Why a rendering ended, where that has a code of its own.
#[derive(Debug)]
enum Ended {
    Raised(String),
    NoDate,
    Limit(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Raised(message) => write!(f, "{message}"),
            Ended::NoDate => write!(f, "the template asks for today's date"),
            Ended::Limit(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Ended {}

fn ended(how: Ended) -> Error {
    Error::new(ErrorKind::InvalidOperation, how.to_string()).with_source(how)
}

/// What one rendering uses up and finds.
#[derive(Default)]
struct Run {
    bytes_left: u64,
    output_left: u64,
    is_full: bool,
    written_chars: u64,
    generated: Vec<(u64, u64)>,
}

/// What a thread keeps of its last rendering.
#[derive(Default)]
struct Kept {
    text: String,
    spelled: Vec<u64>,
    generated: Vec<u64>,
}

thread_local! {
    static RUN: RefCell<Run> = RefCell::new(Run::default());
    static KEPT: RefCell<Kept> = RefCell::new(Kept::default());
}

/// Charges for `bytes` of a string that a template makes.
fn charge(bytes: usize) -> Result<(), Error> {
    RUN.with(|run| {
        let mut run = run.borrow_mut();
        match run.bytes_left.checked_sub(bytes as u64) {
            Some(left) => {
                run.bytes_left = left;
                Ok(())
            }
            None => Err(ended(Ended::Limit("the template makes more text than its limit of work".into()))),
        }
    })
}

fn charged(text: String) -> Result<Value, Error> {
    charge(text.len())?;
    Ok(Value::from(text))
}

/// Where the template's own output goes; text that is captured (in macros and blocks of `set`) does not come here.
struct Writer {
    text: Vec<u8>,
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        RUN.with(|run| {
            let mut run = run.borrow_mut();
            if bytes.len() as u64 > run.output_left {
                run.is_full = true;
                return Err(io::Error::other("full"));
            }
            run.output_left -= bytes.len() as u64;
            run.written_chars += bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count() as u64;
            self.text.extend_from_slice(bytes);
            Ok(bytes.len())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A rendering that is about to begin. The library makes outputs over writers for its own templates only, so that one
/// of these prints a `Start`, whose formatter runs ours.
#[derive(Debug)]
struct Start {
    loaded: *const EvenkeelTemplate,
    root: Value,
}

// It never leaves the thread and the call that make it.
unsafe impl Send for Start {}
unsafe impl Sync for Start {}

impl Object for Start {}

static STARTER: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_formatter(|out, _state, value| {
        let start = value.downcast_object_ref::<Start>().ok_or_else(|| failed("nothing to render"))?;
        // Valid: `render` has it for the length of the call.
        let loaded: &'static EvenkeelTemplate = unsafe { &*start.loaded };
        let (instructions, blocks) = (&loaded.compiled.instructions, &loaded.compiled.blocks);
        Vm::new(&loaded.environment).eval(instructions, start.root.clone(), blocks, out, AutoEscape::None).map(|_| ())
    });
    environment.add_template("start", "{{ start }}").expect("a template of one variable");
    environment
});

fn write_value(out: &mut Output, _state: &State, value: &Value) -> Result<(), Error> {
    let written = match value.as_str() {
        Some(text) => {
            charge(text.len())?;
            out.write_str(text)
        }
        None => {
            let text = str_of(value);
            charge(text.len())?;
            out.write_str(&text)
        }
    };
    written.map_err(Error::from)
}

/// `~`: both sides as `str` writes them.
fn concat(left: &Value, right: &Value) -> Result<Value, Error> {
    let mut text = str_of(left);
    match right.as_str() {
        Some(right) => text.push_str(right),
        None => text.push_str(&str_of(right)),
    }
    charged(text)
}

fn undefined(what: &str) -> Error {
    Error::new(ErrorKind::UndefinedError, format!("{what} of a value that is undefined"))
}

fn list_of(value: &Value) -> Option<Vec<Value>> {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable).then(|| value.try_iter().into_iter().flatten().collect())
}

/// A number as Python's operators take it: booleans count.
fn as_number(value: &Value) -> Value {
    match value.kind() {
        ValueKind::Bool => Value::from(i64::from(value.is_true())),
        _ => value.clone(),
    }
}

fn cannot(operator: &str, left: &Value, right: &Value) -> Error {
    if left.is_undefined() || right.is_undefined() {
        return undefined(operator);
    }
    failed(format!("{operator} of {} and {}", left.kind(), right.kind()))
}

fn arithmetic(operator: &str, left: &Value, right: &Value) -> Result<Value, Error> {
    let (left, right) = (as_number(left), as_number(right));
    if left.kind() != ValueKind::Number || right.kind() != ValueKind::Number {
        return Err(cannot(operator, &left, &right));
    }
    let overflow = || failed(format!("{operator}: the result has more than 38 digits"));
    if left.is_integer() && right.is_integer() {
        let (a, b) = (i128::try_from(left)?, i128::try_from(right)?);
        let result = match operator {
            "+" => a.checked_add(b),
            "*" => a.checked_mul(b),
            _ if b == 0 => return Err(failed("modulo by zero")),
            _ => a.checked_rem(b).map(|rest| if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }),
        }
        .ok_or_else(overflow)?;
        return Ok(i64::try_from(result).map_or_else(|_| Value::from(result), Value::from));
    }
    let (a, b) = (f64::try_from(left)?, f64::try_from(right)?);
    Ok(Value::from(match operator {
        "+" => a + b,
        "*" => a * b,
        _ if b == 0.0 => return Err(failed("modulo by zero")),
        _ => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
                rest + b
            } else {
                rest
            }
        }
    }))
}

fn add(left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        return charged([left, right].concat());
    }
    if let (Some(mut elements), Some(others)) = (list_of(left), list_of(right)) {
        elements.extend(others);
        charge(elements.len() * 16)?;
        return Ok(Value::from(elements));
    }
    arithmetic("+", left, right)
}

fn multiply(left: &Value, right: &Value) -> Result<Value, Error> {
    let (repeated, count) = if left.kind() == ValueKind::Number { (right, left) } else { (left, right) };
    let times = || i64::try_from(count.clone()).map(|count| usize::try_from(count).unwrap_or(0)).map_err(|_| cannot("*", left, right));
    if let Some(text) = repeated.as_str() {
        let times = times()?;
        charge(text.len().saturating_mul(times))?;
        return Ok(Value::from(text.repeat(times)));
    }
    if let Some(elements) = list_of(repeated) {
        let times = times()?;
        charge(elements.len().saturating_mul(times).saturating_mul(16))?;
        return Ok(Value::from((0..times).flat_map(|_| elements.iter().cloned()).collect::<Vec<_>>()));
    }
    arithmetic("*", left, right)
}

/// `%`: also of a text with one %s, %d or %% after another.
fn remainder(left: &Value, right: &Value) -> Result<Value, Error> {
    let Some(format) = left.as_str() else { return arithmetic("%", left, right) };
    let list = list_of(right);
    let mut values = list.unwrap_or_else(|| vec![right.clone()]).into_iter();
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let code = chars.next();
        if code == Some('%') {
            out.push('%');
            continue;
        }
        let value = values.next().ok_or_else(|| failed("not enough arguments for format string"))?;
        match code {
            Some('s') => out += &str_of(&value),
            Some('r') => out += &python::repr(&value),
            Some('d' | 'i') => out += &i128::try_from(as_number(&value))?.to_string(),
            _ => return Err(failed("only %s, %r and %d are supported in a format string")),
        }
    }
    if values.next().is_some() && right.kind() != ValueKind::Map {
        return Err(failed("not all arguments converted during string formatting"));
    }
    charged(out)
}

fn item(value: &Value, key: &Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(undefined("an item"));
    }
    if let Some(text) = value.as_str() {
        if let Ok(at) = i64::try_from(key.clone()) {
            let place = if at < 0 { text.chars().count() as i64 + at } else { at };
            let found = usize::try_from(place).ok().and_then(|place| text.chars().nth(place));
            return Ok(found.map_or(Value::UNDEFINED, |c| Value::from(c.to_string())));
        }
    }
    if value.is_none() {
        return Ok(Value::UNDEFINED);
    }
    python::member(value, key).or(Ok(Value::UNDEFINED))
}

fn contains(value: &Value, container: &Value) -> Result<Value, Error> {
    if let Some(text) = container.as_str() {
        let part = value.as_str().ok_or_else(|| failed(format!("'in <string>' requires a string, not {}", value.kind())))?;
        return Ok(Value::from(text.contains(part)));
    }
    match container.kind() {
        ValueKind::Undefined => Ok(Value::from(false)),
        ValueKind::Map => Ok(Value::from(!python::member(container, value)?.is_undefined())),
        ValueKind::Seq | ValueKind::Iterable => Ok(Value::from(container.try_iter()?.any(|element| element == *value))),
        kind => Err(failed(format!("'in' of {kind}, which contains nothing"))),
    }
}

/// `value[start:stop:step]`.
fn slice(value: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value, Error> {
    let text: Option<Vec<char>> = value.as_str().map(|text| text.chars().collect());
    let list = list_of(value);
    let count = match (&text, &list) {
        (Some(chars), _) => chars.len(),
        (None, Some(elements)) => elements.len(),
        (None, None) => return Err(cannot("a slice", value, start)),
    } as i64;
    let bound = |of: &Value| if of.is_none() { Ok(None) } else { i64::try_from(of.clone()).map(Some) };
    let step = bound(step)?.unwrap_or(1);
    if step == 0 {
        return Err(failed("slice step cannot be zero"));
    }
    let (low, high) = if step > 0 { (0, count) } else { (-1, count - 1) };
    let place = |of: Option<i64>, fallback: i64| match of {
        Some(at) if at < 0 => at.saturating_add(count).max(low),
        Some(at) => at.min(high),
        None => fallback,
    };
    let (mut at, end) = (place(bound(start)?, if step > 0 { low } else { high }), place(bound(stop)?, if step > 0 { high } else { low }));
    let mut places = Vec::new();
    while if step > 0 { at < end } else { at > end } {
        places.push(at as usize);
        at = at.saturating_add(step);
    }
    charge(places.len())?;
    Ok(match text {
        Some(chars) => Value::from(places.into_iter().map(|at| chars[at]).collect::<String>()),
        None => {
            let elements = list.unwrap_or_default();
            Value::from(places.into_iter().map(|at| elements[at].clone()).collect::<Vec<_>>())
        }
    })
}

fn length(value: &Value) -> Result<usize, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(0),
        ValueKind::String => Ok(value.as_str().unwrap_or_default().chars().count()),
        kind => value.len().ok_or_else(|| failed(format!("a value of kind {kind} has no length"))),
    }
}

fn trim(value: &Value, chars: Option<String>) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => charged(python::strip_both(text, chars.as_deref())),
        None => charged(python::strip_both(&str_of(value), chars.as_deref())),
    }
}

fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent = match options.get::<Option<Value>>("indent")? {
        Some(indent) if indent.kind() == ValueKind::String => Some(str_of(&indent)),
        Some(indent) if indent.kind() == ValueKind::Number => {
            let width = usize::try_from(i64::try_from(indent)?).unwrap_or(0);
            if width > 1000 {
                return Err(failed("tojson: indent above 1000"));
            }
            Some(" ".repeat(width))
        }
        _ => None,
    };
    let separators = match options.get::<Option<Value>>("separators")? {
        Some(pair) if !pair.is_none() => Some((str_of(&pair.get_item_by_index(0)?), str_of(&pair.get_item_by_index(1)?))),
        _ => None,
    };
    let (item_separator, key_separator) =
        separators.unwrap_or_else(|| (if indent.is_some() { "," } else { ", " }.into(), ": ".into()));
    let style = JsonStyle {
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
        item_separator,
        key_separator,
    };
    options.assert_all_used()?;
    charged(python::to_json(value, &style)?)
}

fn indent(value: &Value, width: Option<Value>, first: Option<bool>, blank: Option<bool>, options: Kwargs) -> Result<Value, Error> {
    let text = str_of(value);
    let width = match width.or(options.get::<Option<Value>>("width")?) {
        Some(width) if width.kind() == ValueKind::String => str_of(&width),
        Some(width) => " ".repeat(usize::try_from(i64::try_from(width)?).unwrap_or(0).min(1000)),
        None => "    ".into(),
    };
    let first = first.or(options.get::<Option<bool>>("first")?).unwrap_or(false);
    let blank = blank.or(options.get::<Option<bool>>("blank")?).unwrap_or(false);
    let mut out = String::new();
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if if i == 0 { first } else { blank || !line.is_empty() } {
            out += &width;
        }
        out += line;
    }
    charged(out)
}

fn join(value: &Value, separator: Option<String>, attribute: Option<Value>) -> Result<Value, Error> {
    let separator = separator.unwrap_or_default();
    let mut out = String::new();
    if !value.is_undefined() {
        for (i, element) in value.try_iter()?.enumerate() {
            if i > 0 {
                out += &separator;
            }
            out += &str_of(&match &attribute {
                Some(name) => item(&element, name)?,
                None => element,
            });
        }
    }
    charged(out)
}

fn replace(value: &Value, old: &Value, new: &Value, count: Option<i64>) -> Result<Value, Error> {
    let (text, old, new) = (str_of(value), str_of(old), str_of(new));
    charged(match count.and_then(|count| usize::try_from(count).ok()) {
        Some(count) => text.replacen(&old, &new, count),
        None => text.replace(&old, &new),
    })
}

/// Halves to even, as Python rounds.
fn round(value: &Value, precision: Option<i32>, method: Option<String>) -> Result<Value, Error> {
    let scale = 10f64.powi(precision.unwrap_or(0).clamp(-300, 300));
    let scaled = f64::try_from(as_number(value))? * scale;
    let rounded = match method.as_deref() {
        None | Some("common") => scaled.round_ties_even(),
        Some("ceil") => scaled.ceil(),
        Some("floor") => scaled.floor(),
        Some(other) => return Err(failed(format!("round: '{other}' is not a method"))),
    };
    Ok(Value::from(rounded / scale))
}

fn dictsort(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let case_sensitive = options.get::<Option<bool>>("case_sensitive")?.unwrap_or(false);
    let by_value = options.get::<Option<String>>("by")?.is_some_and(|by| by == "value");
    let reverse = options.get::<Option<bool>>("reverse")?.unwrap_or(false);
    let folded = |value: &Value| match value.as_str() {
        Some(text) if !case_sensitive => Value::from(text.to_lowercase()),
        _ => value.clone(),
    };
    let mut pairs = python::pairs(value)?;
    pairs.sort_by(|a, b| {
        let (a, b) = if reverse { (b, a) } else { (a, b) };
        if by_value { folded(&a.1).cmp(&folded(&b.1)) } else { folded(&a.0).cmp(&folded(&b.0)) }
    });
    Ok(Value::from(pairs.into_iter().map(|(key, value)| python::tuple(vec![key, value])).collect::<Vec<_>>()))
}

fn range(first: i64, second: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let (start, stop) = second.map_or((0, first), |stop| (first, stop));
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(failed("range: the step is 0"));
    }
    let (span, stride) = if step > 0 { (stop.saturating_sub(start), step) } else { (start.saturating_sub(stop), step.saturating_neg()) };
    let count = if span <= 0 { 0 } else { (span - 1) / stride + 1 };
    if count > MAX_RANGE {
        return Err(failed(format!("range of {count} numbers; a template may have {MAX_RANGE}")));
    }
    charge(count as usize * 16)?;
    Ok(Value::from((0..count).map(|i| Value::from(start + i * step)).collect::<Vec<_>>()))
}

/// What `{% generation %}` becomes: notes where the block is in the output, as transformers does: by what the template
/// has written before it, which within a macro is what precedes the macro's call.
fn generation(state: &State, options: Kwargs) -> Result<Value, Error> {
    let caller: Value = options.get("caller")?;
    let text = caller.call(state, &[])?;
    let length = text.as_str().map_or(0, |text| text.chars().count() as u64);
    RUN.with(|run| {
        let mut run = run.borrow_mut();
        let begin = run.written_chars;
        run.generated.push((begin, begin + length));
    });
    Ok(text)
}

fn is_sized(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined)
}

fn add_functions(environment: &mut Environment<'static>, date: Option<Date>) {
    environment.add_filter("__concat", concat);
    environment.add_filter("__add", add);
    environment.add_filter("__multiply", multiply);
    environment.add_filter("__remainder", remainder);
    environment.add_filter("__item", item);
    environment.add_filter("__slice", slice);
    environment.add_filter("__contains", contains);
    for method in METHODS {
        environment.add_filter(format!("__method_{method}"), move |state: &State, value: &Value, args: Rest<Value>| {
            match value.kind() {
                ValueKind::Plain => value.call_method(state, method, &args),
                _ => {
                    let result = call_method(value, method, &args)?;
                    charge(result.as_str().map_or(0, str::len))?;
                    Ok(result)
                }
            }
        });
    }
    environment.add_filter("tojson", tojson);
    environment.add_filter("trim", trim);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("indent", indent);
    environment.add_filter("dictsort", dictsort);
    environment.add_filter("round", round);
    environment.add_filter("join", join);
    environment.add_filter("replace", replace);
    environment.add_filter("string", |value: &Value| charged(str_of(value)));
    for case in ["lower", "upper", "capitalize", "title"] {
        environment.add_filter(case, move |value: &Value| call_method(&Value::from(str_of(value)), case, &[]));
    }
    environment.add_test("string", |value: &Value| value.kind() == ValueKind::String);
    environment.add_test("iterable", |value: &Value| is_sized(value) || value.kind() == ValueKind::Iterable);
    environment.add_test("sequence", is_sized);
    environment.add_test("number", |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    environment.add_function("range", range);
    environment.add_function("__generation", generation);
    environment.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        Err(ended(Ended::Raised(str_of(message))))
    });
    environment.add_function("strftime_now", move |format: String| match date {
        Some(date) => date.strftime(&format).map(Value::from),
        None => Err(ended(Ended::NoDate)),
    });
}

/// The word of a block tag that begins at the start of `inside`, which follows `{%`: its place, itself, and what follows.
fn tag_word(inside: &str) -> (usize, &str, &str) {
    let signed = inside.strip_prefix(['-', '+']).unwrap_or(inside);
    let words = signed.trim_start();
    let length = words.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(words.len());
    (inside.len() - words.len(), &words[..length], &words[length..])
}

/// Words that are no variables, and variables that a body does not take from outside.
const NOT_CAPTURED: &[&str] = &[
    "and", "or", "not", "in", "is", "if", "else", "elif", "endif", "for", "endfor", "recursive", "set", "endset", "macro", "endmacro",
    "call", "endcall", "generation", "endgeneration", "filter", "endfilter", "with", "endwith", "raw", "endraw", "break", "continue",
    "true", "false", "none", "True", "False", "None", "caller", "self", "super", "namespace", "range", "raise_exception",
    "strftime_now", "defined", "undefined", "string", "mapping", "iterable", "sequence", "number",
];

/// The variables that the tags of `body` name.
fn names_in(body: &str) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let mut rest = body;
    while let Some(begin) = rest.find('{') {
        let tag = &rest[begin + 1..];
        let Some(close) = tag.strip_prefix('%').map(|_| "%}").or(tag.strip_prefix('{').map(|_| "}}")) else {
            rest = tag;
            continue;
        };
        let (inside, after) = tag[1..].split_once(close).unwrap_or((&tag[1..], ""));
        rest = after;
        let mut quote = None;
        let mut escaped = false;
        let mut previous = ' ';
        let mut chars = inside.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if let Some(open) = quote {
                if !escaped && c == open {
                    quote = None;
                }
                escaped = c == '\\' && !escaped;
            } else if c == '"' || c == '\'' {
                quote = Some(c);
            } else if c.is_ascii_alphabetic() || c == '_' {
                let mut end = at + 1;
                while let Some((next, _)) = chars.next_if(|(_, next)| next.is_ascii_alphanumeric() || *next == '_') {
                    end = next + 1;
                }
                let name = &inside[at..end];
                if previous != '.' && previous != '|' && !NOT_CAPTURED.contains(&name) && !names.contains(&name) {
                    names.push(name);
                }
            }
            if !c.is_whitespace() {
                previous = c;
            }
        }
    }
    names
}

/// What precedes the tag that ends the body at whose start `source` begins.
fn body_of(source: &str) -> &str {
    let mut depth = 0;
    for (begin, _) in source.match_indices("{%") {
        match tag_word(&source[begin + 2..]).1 {
            "macro" | "call" | "generation" => depth += 1,
            "endmacro" | "endcall" | "endgeneration" if depth == 0 => return &source[..begin],
            "endmacro" | "endcall" | "endgeneration" => depth -= 1,
            _ => {}
        }
    }
    source
}

/// `parameters` in parentheses, with one more, whose default names what the body takes from outside.
fn with_captures(parameters: &str, body: &str) -> String {
    let capture = format!("__outer=(false and [{}])", names_in(body).join(", "));
    let inner = parameters.trim();
    if inner.is_empty() {
        return format!("({capture})");
    }
    format!("({}, {capture})", inner.strip_suffix(',').unwrap_or(inner))
}

/// The text in the parentheses with which `source` begins, and what follows; None: it does not.
fn parenthesised(source: &str) -> Option<(&str, &str)> {
    let inner = source.trim_start().strip_prefix('(')?;
    let mut depth = 1;
    for (at, c) in inner.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some((&inner[..at], &inner[at + 1..])),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The source as the library takes it, and whether it marks what is generated.
///
/// `{% generation %}` and its end become a call block, which is what transformers' extension makes of them. And the
/// library gives the bodies of macros and call blocks the variables that it finds in them, but overlooks the list of a
/// slice, `loop` in the list of an inner loop, a variable that is set from itself, and one whose attribute is set. So
/// each has a parameter more, in whose default all of them stand.
fn adapted(source: &str) -> (String, bool) {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut found = false;
    while let Some(begin) = rest.find("{%") {
        let (place, word, after) = tag_word(&rest[begin + 2..]);
        let body = || body_of(after.split_once("%}").map_or("", |(_, body)| body));
        out.push_str(&rest[..begin + 2]);
        let sign = &rest[begin + 2..begin + 2 + place];
        rest = match word {
            "raw" => {
                let end = after.match_indices("{%").find(|(at, _)| tag_word(&after[at + 2..]).1 == "endraw").map_or(after.len(), |(at, _)| at);
                out.push_str(&rest[begin + 2..rest.len() - after.len() + end]);
                &after[end..]
            }
            "generation" => {
                found = true;
                out.push_str(&format!("{sign}call{} __generation()", with_captures("", body())));
                after
            }
            "endgeneration" => {
                out.push_str(&format!("{sign}endcall"));
                after
            }
            "call" => {
                let (parameters, after) = parenthesised(after).unwrap_or(("", after));
                out.push_str(&format!("{sign}call{} ", with_captures(parameters, body())));
                after
            }
            "macro" => {
                let length = after.find(['(', '%']).unwrap_or(0);
                let (name, list) = after.split_at(length);
                match parenthesised(list) {
                    Some((parameters, after)) => {
                        out.push_str(&format!("{sign}macro{name}{}", with_captures(parameters, body())));
                        after
                    }
                    None => &rest[begin + 2..],
                }
            }
            _ => &rest[begin + 2..],
        };
    }
    out.push_str(rest);
    (out, found)
}

/// The numbers under which a rendering keeps the filters that it has looked up. Those that the compiler has not given away
/// are for ours.
struct Numbers {
    next: u8,
    of: HashMap<&'static str, u8>,
}

impl Numbers {
    /// As many as the library keeps (MAX_LOCALS); a filter without one is looked up whenever it is applied.
    const KEPT: u8 = 50;
    const NONE: u8 = u8::MAX;

    fn after(instructions: &Instructions<'static>) -> Numbers {
        let used = (0..instructions.len() as u32).filter_map(|i| match instructions.get(i) {
            Some(Instruction::ApplyFilter(_, _, number)) if *number != Numbers::NONE => Some(number + 1),
            _ => None,
        });
        Numbers { next: used.max().unwrap_or(0), of: HashMap::new() }
    }

    fn give(&mut self, name: &'static str) -> u8 {
        if let Some(number) = self.of.get(name) {
            return *number;
        }
        if self.next >= Numbers::KEPT {
            return Numbers::NONE;
        }
        self.of.insert(name, self.next);
        self.next += 1;
        self.next - 1
    }
}

/// Replaces the operators and method calls whose results are not Python's.
fn correct(instructions: &mut Instructions<'static>, environment: &Environment<'static>) -> Result<(), String> {
    let state = environment.empty_state();
    let unknown = |error: Error| matches!(error.kind(), ErrorKind::UnknownFilter | ErrorKind::UnknownTest);
    let mut numbers = Numbers::after(instructions);
    let mut filter = |name, count| Instruction::ApplyFilter(name, count, numbers.give(name));
    for i in 0..instructions.len() as u32 {
        let Some(instruction) = instructions.get_mut(i) else { break };
        let new = match instruction {
            Instruction::StringConcat => filter("__concat", Some(2)),
            Instruction::Add => filter("__add", Some(2)),
            Instruction::Mul => filter("__multiply", Some(2)),
            Instruction::Rem => filter("__remainder", Some(2)),
            Instruction::GetItem => filter("__item", Some(2)),
            Instruction::In => filter("__contains", Some(2)),
            Instruction::Slice => filter("__slice", Some(4)),
            Instruction::ApplyFilter(name, ..) if state.apply_filter(name, &[]).is_err_and(unknown) => {
                return Err(format!("the template uses a filter '{name}', which there is not"));
            }
            Instruction::PerformTest(name, ..) if state.perform_test(name, &[]).is_err_and(unknown) => {
                return Err(format!("the template uses a test '{name}', which there is not"));
            }
            Instruction::SetAttr(name) if name.starts_with('_') => {
                return Err(format!("the template sets the attribute '{name}': names may not begin with '_'"));
            }
            Instruction::CallMethod(name, count) => match METHODS.iter().position(|method| method == name) {
                Some(at) => filter(METHOD_FILTERS[at], *count),
                None => continue,
            },
            _ => continue,
        };
        *instruction = new;
    }
    Ok(())
}

/// Variables that no instruction stores.
const OF_THE_LIBRARY: [&str; 4] = ["loop", "caller", "self", "super"];

/// Where a macro is declared, which is once a rendering, it takes the values of all variables that its body names: many
/// times as much work as a short chat. Those that cannot be there are not looked for: which neither are `given` nor are
/// stored by the code around the macro. (What another macro stores is its own.) The work counts as before.
fn drop_captures(instructions: &mut Instructions<'static>, given: &HashSet<&str>) {
    // A body lies between a jump over it and the jump's target; body 0 is the template.
    let count = instructions.len() as u32;
    let mut ends = HashMap::new();
    for i in 0..count {
        let Some(Instruction::BuildMacro(_, begin, _)) = instructions.get(i) else { continue };
        if let Some(Instruction::Jump(end)) = begin.checked_sub(1).and_then(|jump| instructions.get(jump)) {
            ends.insert(*begin, *end);
        }
    }
    let mut around = vec![0usize];
    let mut open = vec![(0usize, count)];
    let mut body_of = Vec::with_capacity(count as usize);
    let mut stored = HashSet::new();
    for i in 0..count {
        while open.len() > 1 && open[open.len() - 1].1 <= i {
            open.pop();
        }
        if let Some(end) = ends.get(&i) {
            around.push(open[open.len() - 1].0);
            open.push((around.len() - 1, *end));
        }
        let body = open[open.len() - 1].0;
        body_of.push(body);
        if let Some(Instruction::StoreLocal(name)) = instructions.get(i) {
            stored.insert((*name, body));
        }
    }
    for i in 0..count {
        let Some(Instruction::Enclose(name)) = instructions.get(i) else { continue };
        let mut body = body_of[i as usize];
        let mut found = given.contains(name) || OF_THE_LIBRARY.contains(name) || stored.contains(&(*name, body));
        while !found && body != 0 {
            body = around[body];
            found = stored.contains(&(*name, body));
        }
        if !found {
            if let Some(instruction) = instructions.get_mut(i) {
                *instruction = Instruction::Jump(i + 1);
            }
        }
    }
}

/// The names under which METHODS are filters, in the same order.
static METHOD_FILTERS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| METHODS.iter().map(|method| &*Box::leak(format!("__method_{method}").into_boxed_str())).collect());

fn error_text(error: &Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_string);
    match error.line() {
        Some(line) => format!("line {line} of the template: {detail}"),
        None => detail,
    }
}

/// The code of an error, and its words.
fn explained(error: &Error) -> (i32, String) {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(at) = source {
        if let Some(how) = at.downcast_ref::<Ended>() {
            let code = match how {
                Ended::Raised(_) => RAISED,
                Ended::NoDate => NO_DATE,
                Ended::Limit(_) => LIMIT,
            };
            return (code, how.to_string());
        }
        if let Some(inner) = at.downcast_ref::<Error>() {
            if inner.kind() == ErrorKind::OutOfFuel {
                return (LIMIT, "the template takes more steps than its limit of work".into());
            }
            if inner.kind() == ErrorKind::InvalidOperation && inner.to_string().contains("recursion limit") {
                return (LIMIT, "the template's macros call each other too deeply".into());
            }
        }
        source = at.source();
    }
    (REFUSED, error_text(error))
}

unsafe fn load(
    source: EvenkeelText,
    variables: EvenkeelText,
    date: EvenkeelText,
    special: *const EvenkeelText,
    num_special: usize,
    limits: EvenkeelTemplateLimits,
) -> Result<Box<EvenkeelTemplate>, String> {
    let source = text_of(source)?;
    if source.len() > MAX_SOURCE_BYTES {
        return Err(format!("the template has {} bytes; at most {MAX_SOURCE_BYTES} are read", source.len()));
    }
    let date = match text_of(date)? {
        "" => None,
        text => Some(Date::parse(text).ok_or_else(|| format!("'{text}' is not a day of the form YYYY-MM-DD"))?),
    };
    let mut tokens = Vec::with_capacity(num_special);
    for i in 0..num_special {
        tokens.push(text_of(*special.add(i))?);
    }
    let spelled = Spelled::new(&tokens)?;
    let variables = match text_of(variables)? {
        "" => Vec::new(),
        text => {
            let (object, _) = json::read(text, None)?;
            let keys: Vec<Value> = object.try_iter().map_err(|error| error.to_string())?.collect();
            keys.into_iter().map(|key| (key.clone(), object.get_item(&key).unwrap_or_default())).collect()
        }
    };
    let mut environment = Box::new(Environment::new());
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_fuel(Some(limits.max_work));
    environment.set_formatter(write_value);
    add_functions(&mut environment, date);
    let (rewritten, has_generation) = adapted(&source.replace("\r\n", "\n").replace('\r', "\n"));
    let source: Box<str> = rewritten.into_boxed_str();
    // The template borrows its source, which the same struct owns, never moves and drops after it.
    let borrowed: &'static str = &*ptr::from_ref::<str>(&source);
    let mut config = TemplateConfig {
        syntax_config: Default::default(),
        ws_config: Default::default(),
        default_auto_escape: Arc::new(|_| AutoEscape::None),
    };
    config.ws_config.trim_blocks = true;
    config.ws_config.lstrip_blocks = true;
    let mut compiled =
        CompiledTemplate::new("chat_template", borrowed, &config).map_err(|error| explained(&error).1)?;
    correct(&mut compiled.instructions, &environment)?;
    if compiled.blocks.is_empty() {
        let names = variables.iter().filter_map(|(name, _)| name.as_str());
        drop_captures(&mut compiled.instructions, &names.chain(GIVEN).collect());
    }
    for block in compiled.blocks.values_mut() {
        correct(block, &environment)?;
    }
    Ok(Box::new(EvenkeelTemplate { compiled, environment, _source: source, variables, spelled, limits, has_generation }))
}

/// # Safety
/// As template.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_template_load(
    source: EvenkeelText,
    variables: EvenkeelText,
    date: EvenkeelText,
    special_tokens: *const EvenkeelText,
    num_special_tokens: usize,
    limits: EvenkeelTemplateLimits,
    out: *mut *mut EvenkeelTemplate,
) -> i32 {
    give(out, || load(source, variables, date, special_tokens, num_special_tokens, limits))
}

/// # Safety
/// As template.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_template_free(loaded: *mut EvenkeelTemplate) {
    free(loaded)
}

/// # Safety
/// As template.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_template_has_generation(loaded: *const EvenkeelTemplate) -> i32 {
    i32::from((*loaded).has_generation)
}

/// The names under which messages have their reasoning; templates read the first, gpt-oss's the second.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A message as transformers gives it to a template: without members that are null, its reasoning under both names.
fn normalized(message: &Value) -> Result<Value, Error> {
    let mut members: Vec<(Value, Value)> = Vec::new();
    for key in message.try_iter()? {
        let value = message.get_item(&key)?;
        if !value.is_none() {
            members.push((key, value));
        }
    }
    let find = |name: &str| members.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value.clone());
    let Some(reasoning) = REASONING.into_iter().find_map(find) else { return Ok(Value::from_iter(members)) };
    let thinking = find("thinking").unwrap_or_else(|| reasoning.clone());
    members.retain(|(key, _)| key.as_str() != Some("thinking"));
    members.insert(0, (Value::from("thinking"), thinking));
    match members.iter_mut().find(|(key, _)| key.as_str() == Some("reasoning_content")) {
        Some((_, value)) => *value = reasoning,
        None => members.push((Value::from("reasoning_content"), reasoning)),
    }
    Ok(Value::from_iter(members))
}

unsafe fn parse(loaded: &EvenkeelTemplate, text: EvenkeelText) -> Result<Box<EvenkeelChat>, String> {
    let (chat, has_hidden) = json::read(text_of(text)?, Some(&loaded.spelled))?;
    let member = |name: &str| chat.get_attr(name).map_err(|error| error.to_string());
    let or_none = |value: Value| if value.is_undefined() { Value::from(()) } else { value };
    let messages = member("messages")?;
    if messages.kind() != ValueKind::Seq {
        return Err("the chat has no list 'messages'".into());
    }
    let messages: Vec<Value> = messages.try_iter().map_err(|error| error.to_string())?.collect();
    if messages.iter().any(|message| message.kind() != ValueKind::Map) {
        return Err("'messages' is not a list of objects".into());
    }
    let messages = messages.iter().map(normalized).collect::<Result<_, _>>().map_err(|error: Error| error.to_string())?;
    Ok(Box::new(EvenkeelChat { messages, tools: or_none(member("tools")?), documents: or_none(member("documents")?), has_hidden }))
}

/// # Safety
/// As template.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_chat_parse(loaded: *const EvenkeelTemplate, text: EvenkeelText, out: *mut *mut EvenkeelChat) -> i32 {
    give(out, || parse(&*loaded, text))
}

/// # Safety
/// As template.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_chat_free(chat: *mut EvenkeelChat) {
    free(chat)
}

/// What a rendering gives to the template besides the variables that it was loaded with.
const GIVEN: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// Positions in characters, ascending or not, as bytes of `text`.
fn bytes_of_chars(text: &str, chars: &[(u64, u64)]) -> Vec<u64> {
    if text.is_ascii() {
        return chars.iter().flat_map(|&(begin, end)| [begin.min(text.len() as u64), end.min(text.len() as u64)]).collect();
    }
    let starts: Vec<u64> = text.char_indices().map(|(at, _)| at as u64).chain([text.len() as u64]).collect();
    let byte = |at: u64| starts[(at as usize).min(starts.len() - 1)];
    chars.iter().flat_map(|&(begin, end)| [byte(begin), byte(end)]).collect()
}

fn render(loaded: &EvenkeelTemplate, chat: &EvenkeelChat, num_messages: usize, prompt: bool) -> Result<(), Error> {
    RUN.with(|run| {
        *run.borrow_mut() =
            Run { bytes_left: loaded.limits.max_string_bytes, output_left: loaded.limits.max_output_bytes, ..Run::default() };
    });
    let messages: Vec<Value> = chat.messages.iter().take(num_messages).cloned().collect();
    let given = [Value::from(messages), chat.tools.clone(), chat.documents.clone(), Value::from(prompt)];
    let given = GIVEN.into_iter().map(Value::from).zip(given);
    let root = Value::from_iter(loaded.variables.iter().cloned().chain(given));
    let mut writer = Writer { text: Vec::with_capacity(loaded.compiled.buffer_size_hint) };
    let start = Value::from_object(Start { loaded, root });
    let done = STARTER.get_template("start").and_then(|starter| {
        starter.render_captured_to(Value::from_iter([(Value::from("start"), start)]), &mut writer).map(|_| ())
    });
    if let Err(error) = done {
        let full = RUN.with(|run| run.borrow().is_full);
        return Err(if full { ended(Ended::Limit("the rendered text is longer than the limit".into())) } else { error });
    }
    let text = String::from_utf8(writer.text).map_err(|error| failed(error.to_string()))?;
    KEPT.with(|kept| {
        let kept = &mut *kept.borrow_mut();
        kept.spelled.clear();
        kept.text = if chat.has_hidden { json::shown(text, &mut kept.spelled) } else { text };
        let generated = RUN.with(|run| std::mem::take(&mut run.borrow_mut().generated));
        kept.generated = bytes_of_chars(&kept.text, &generated);
    });
    Ok(())
}

/// # Safety
/// As template.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_chat_render(
    loaded: *const EvenkeelTemplate,
    chat: *const EvenkeelChat,
    num_messages: usize,
    add_generation_prompt: i32,
    out: *mut EvenkeelRendered,
) -> i32 {
    let empty = EvenkeelText { bytes: ptr::null(), num_bytes: 0 };
    *out = EvenkeelRendered { text: empty, spelled: ptr::null(), num_spelled: 0, generated: ptr::null(), num_generated: 0 };
    caught(|| {
        render(&*loaded, &*chat, num_messages, add_generation_prompt != 0).map_err(|error| explained(&error))?;
        KEPT.with(|kept| {
            let kept = kept.borrow();
            *out = EvenkeelRendered {
                text: EvenkeelText { bytes: kept.text.as_ptr(), num_bytes: kept.text.len() },
                spelled: kept.spelled.as_ptr(),
                num_spelled: kept.spelled.len(),
                generated: kept.generated.as_ptr(),
                num_generated: kept.generated.len() / 2,
            };
        });
        Ok(())
    })
}

#[no_mangle]
pub extern "C" fn evenkeel_template_last_error() -> EvenkeelText {
    last_error()
}
