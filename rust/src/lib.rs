//! The C interface that rust/tokenizer.h declares, over the `tokenizers` crate; those of the other headers
//! are in template.rs, table.rs and store.rs.
//!
//! Nothing unwinds out of here: a panic (the regular expression engine panics when it reaches its retry limit)
//! becomes an error of that call. A loaded tokenizer is immutable but for the model's own locked cache, so that
//! shared references may be used from many threads.

mod checkpoint;
mod json;
mod profile;
mod python;
mod store;
mod table;
mod template;

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::slice;

use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{AddedToken, Encoding, ModelWrapper, Tokenizer};

/// Codes of tokenizer.h.
const OK: i32 = 0;
const REFUSED: i32 = 1;
const PANICKED: i32 = 2;

const ADD_SPECIAL_TOKENS: u32 = 1;
const UNTRUSTED: u32 = 2;
const WITH_ENDS: u32 = 4;
const CONTINUES: u32 = 8;

pub struct EvenkeelTokenizer {
    /// Recognises every added token.
    trusting: Tokenizer,
    /// The same, but takes special tokens for the letters they consist of.
    untrusting: Tokenizer,
    /// Both for a text that does not begin a sequence, where that makes a difference.
    trusting_continuing: Option<Tokenizer>,
    continuing: Option<Tokenizer>,
    special_tokens: Vec<String>,
    special_ids: HashSet<u32>,
    of_checkpoint: checkpoint::SpecialTokens,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct EvenkeelText {
    bytes: *const u8,
    num_bytes: usize,
}

#[repr(C)]
pub struct EvenkeelIds {
    ids: *const u32,
    begins: *const u64,
    ends: *const u64,
    num_ids: usize,
}

const NO_IDS: EvenkeelIds = EvenkeelIds { ids: ptr::null(), begins: ptr::null(), ends: ptr::null(), num_ids: 0 };

/// Texts of a checkpoint's files beside tokenizer.json; empty: there is none.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EvenkeelTokenizerFiles {
    tokenizer_config: EvenkeelText,
    special_tokens_map: EvenkeelText,
    generation_config: EvenkeelText,
}

/// What the last call of encode on this thread found.
struct Found {
    ids: Vec<u32>,
    begins: Vec<u64>,
    ends: Vec<u64>,
}

/// A very long text must not be paid for until its thread ends.
const KEPT_IDS: usize = 1 << 16;

thread_local! {
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
    static DECODED: RefCell<String> = const { RefCell::new(String::new()) };
    static FOUND: RefCell<Found> = const { RefCell::new(Found { ids: Vec::new(), begins: Vec::new(), ends: Vec::new() }) };
}

fn remember(message: String) {
    LAST_ERROR.with(|slot| *slot.borrow_mut() = message);
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_string()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "panic without a message".to_string()
    }
}

/// Runs `body`; the code and message of its error, or its panic, become a code and the thread's last error.
fn caught(body: impl FnOnce() -> Result<(), (i32, String)>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => OK,
        Ok(Err((code, message))) => {
            remember(message);
            code
        }
        Err(payload) => {
            remember(panic_text(&*payload));
            PANICKED
        }
    }
}

/// As `caught`, for errors that are all of the input.
fn guarded(body: impl FnOnce() -> Result<(), String>) -> i32 {
    caught(|| body().map_err(|message| (REFUSED, message)))
}

/// Gives what `make` returns to the caller of the C interface, who frees it; `out` is null after an error.
///
/// # Safety
/// `out` must be writable.
unsafe fn give<T>(out: *mut *mut T, make: impl FnOnce() -> Result<Box<T>, String>) -> i32 {
    *out = ptr::null_mut();
    guarded(|| {
        *out = Box::into_raw(make()?);
        Ok(())
    })
}

/// Frees what `give` has given. Null is allowed.
///
/// # Safety
/// `given` must come from `give`, and must not be used afterwards.
unsafe fn free<T>(given: *mut T) {
    if !given.is_null() {
        guarded(|| {
            drop(Box::from_raw(given));
            Ok(())
        });
    }
}

/// # Safety
/// `text` must be readable for the length it states.
unsafe fn bytes_of<'a>(text: EvenkeelText) -> &'a [u8] {
    if text.num_bytes == 0 {
        &[]
    } else {
        slice::from_raw_parts(text.bytes, text.num_bytes)
    }
}

unsafe fn str_of<'a>(text: EvenkeelText) -> Result<&'a str, String> {
    std::str::from_utf8(bytes_of(text)).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()))
}

/// Takes away what stands before the first word of a sequence only; whether there was any.
fn without_first_prefix(wrapper: &mut PreTokenizerWrapper) -> bool {
    match wrapper {
        PreTokenizerWrapper::Metaspace(metaspace) => {
            let first = matches!(metaspace.get_prepend_scheme(), PrependScheme::First);
            if first {
                metaspace.set_prepend_scheme(PrependScheme::Never);
            }
            first
        }
        PreTokenizerWrapper::Sequence(steps) => {
            steps.as_mut().iter_mut().fold(false, |found, step| without_first_prefix(step) || found)
        }
        _ => false,
    }
}

unsafe fn load(
    json: EvenkeelText,
    files: EvenkeelTokenizerFiles,
    added: *const EvenkeelText,
    num_added: usize,
) -> Result<Box<EvenkeelTokenizer>, String> {
    tokenizers::utils::parallelism::set_parallelism(false);
    let mut trusting = Tokenizer::from_bytes(bytes_of(json)).map_err(|error| error.to_string())?;
    if let ModelWrapper::BPE(model) = trusting.get_model() {
        if let Some(dropout) = model.dropout.filter(|dropout| *dropout > 0.0) {
            return Err(format!("model.dropout is {dropout}: ids would be drawn anew at every call; set it to null"));
        }
    }
    // A checkpoint's file may ask for truncation or padding; both would change ids behind our back.
    trusting.with_truncation(None).map_err(|error| error.to_string())?;
    trusting.with_padding(None);
    let mut of_checkpoint = checkpoint::add_special_tokens(
        &mut trusting,
        str_of(files.tokenizer_config)?,
        str_of(files.special_tokens_map)?,
    )?;
    let mut tokens = Vec::with_capacity(num_added);
    for i in 0..num_added {
        tokens.push(AddedToken::from(str_of(*added.add(i))?, true));
    }
    trusting.add_special_tokens(tokens).map_err(|error| error.to_string())?;
    of_checkpoint.find_ends(&trusting, str_of(files.generation_config)?)?;
    let mut special: Vec<(u32, String)> = trusting
        .get_added_tokens_decoder()
        .into_iter()
        .filter(|(_, token)| token.special)
        .map(|(id, token)| (id, token.content))
        .collect();
    special.sort();
    let continued = |of: &Tokenizer| {
        let mut pre_tokenizer = of.get_pre_tokenizer().cloned();
        pre_tokenizer.as_mut().is_some_and(without_first_prefix).then(|| {
            let mut continuing = of.clone();
            continuing.with_pre_tokenizer(pre_tokenizer);
            continuing
        })
    };
    let mut untrusting = trusting.clone();
    untrusting.set_encode_special_tokens(true);
    Ok(Box::new(EvenkeelTokenizer {
        trusting_continuing: continued(&trusting),
        continuing: continued(&untrusting),
        special_ids: special.iter().map(|(id, _)| *id).collect(),
        special_tokens: special.into_iter().map(|(_, token)| token).collect(),
        trusting,
        untrusting,
        of_checkpoint,
    }))
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_load(
    json: EvenkeelText,
    files: EvenkeelTokenizerFiles,
    added: *const EvenkeelText,
    num_added: usize,
    out: *mut *mut EvenkeelTokenizer,
) -> i32 {
    give(out, || load(json, files, added, num_added))
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_free(tokenizer: *mut EvenkeelTokenizer) {
    free(tokenizer)
}

impl EvenkeelTokenizer {
    fn chosen(&self, flags: u32) -> &Tokenizer {
        let (plain, continuing) = if flags & UNTRUSTED == 0 {
            (&self.trusting, &self.trusting_continuing)
        } else {
            (&self.untrusting, &self.continuing)
        };
        continuing.as_ref().filter(|_| flags & CONTINUES != 0).unwrap_or(plain)
    }
}

fn encoded(tokenizer: &EvenkeelTokenizer, text: &str, flags: u32) -> Result<Encoding, String> {
    let chosen = tokenizer.chosen(flags);
    let add_special_tokens = flags & ADD_SPECIAL_TOKENS != 0;
    // Offsets cost time; without them the ids are the same.
    if flags & WITH_ENDS != 0 { chosen.encode(text, add_special_tokens) } else { chosen.encode_fast(text, add_special_tokens) }
        .map_err(|error| error.to_string())
}

/// The ids of a trusted text in which some special tokens, at the bytes `spelled`, are the letters that they consist
/// of: the other special tokens cut it, and what is between them is untrusted.
fn encode_spelled(tokenizer: &EvenkeelTokenizer, text: &str, spelled: &[u64], flags: u32, found: &mut Found) -> Result<(), String> {
    let hidden = json::hide(text, spelled);
    let cuts = tokenizer.chosen(flags & !UNTRUSTED).encode(hidden.as_str(), false).map_err(|error| error.to_string())?;
    // A hidden character takes four bytes; what precedes it takes fewer in the text.
    let widths: Vec<usize> = spelled.iter().map(|at| text[*at as usize..].chars().next().map_or(1, char::len_utf8)).collect();
    let in_text = |at: usize| {
        let mut moved = 0;
        for (begin, width) in spelled.iter().zip(&widths) {
            if *begin as usize + moved >= at {
                break;
            }
            moved += 4 - width;
        }
        at - moved
    };
    let mut add = |id: u32, begin: usize, end: usize| {
        found.ids.push(id);
        found.begins.push(begin as u64);
        found.ends.push(end as u64);
    };
    let mut done = 0;
    let letters = |done: usize, end: usize, add: &mut dyn FnMut(u32, usize, usize)| -> Result<(), String> {
        if done == end {
            return Ok(());
        }
        let place = if done > 0 { CONTINUES } else { flags & CONTINUES };
        let piece = encoded(tokenizer, &text[done..end], UNTRUSTED | WITH_ENDS | place)?;
        for (id, (from, to)) in piece.get_ids().iter().zip(piece.get_offsets()) {
            add(*id, done + from, done + to);
        }
        Ok(())
    };
    for (id, (from, to)) in cuts.get_ids().iter().zip(cuts.get_offsets()) {
        if !tokenizer.special_ids.contains(id) {
            continue;
        }
        let (from, to) = (in_text(*from), in_text(*to));
        letters(done, from, &mut add)?;
        add(*id, from, to);
        done = to;
    }
    letters(done, text.len(), &mut add)
}

unsafe fn encode(tokenizer: &EvenkeelTokenizer, text: EvenkeelText, spelled: &[u64], flags: u32) -> Result<EvenkeelIds, String> {
    let text = str_of(text)?;
    FOUND.with(|slot| {
        let found = &mut *slot.borrow_mut();
        let with_ends = flags & WITH_ENDS != 0;
        if spelled.is_empty() {
            let encoding = encoded(tokenizer, text, flags)?;
            refill(&mut found.ids, encoding.get_ids().iter().copied());
            if with_ends {
                refill(&mut found.begins, encoding.get_offsets().iter().map(|(begin, _)| *begin as u64));
                refill(&mut found.ends, encoding.get_offsets().iter().map(|(_, end)| *end as u64));
            }
        } else {
            refill(&mut found.ids, std::iter::empty());
            refill(&mut found.begins, std::iter::empty());
            refill(&mut found.ends, std::iter::empty());
            encode_spelled(tokenizer, text, spelled, flags, found)?;
        }
        let (mut begins, mut ends) = (ptr::null(), ptr::null());
        if with_ends {
            assert_eq!(found.ends.len(), found.ids.len());
            begins = found.begins.as_ptr();
            ends = found.ends.as_ptr();
        }
        Ok(EvenkeelIds { ids: found.ids.as_ptr(), begins, ends, num_ids: found.ids.len() })
    })
}

fn refill<T>(kept: &mut Vec<T>, values: impl ExactSizeIterator<Item = T>) {
    kept.clear();
    if values.len() <= KEPT_IDS {
        kept.shrink_to(KEPT_IDS);
    }
    kept.extend(values);
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_encode(
    tokenizer: *const EvenkeelTokenizer,
    text: EvenkeelText,
    flags: u32,
    out: *mut EvenkeelIds,
) -> i32 {
    *out = NO_IDS;
    guarded(|| {
        *out = encode(&*tokenizer, text, &[], flags)?;
        Ok(())
    })
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_encode_spelled(
    tokenizer: *const EvenkeelTokenizer,
    text: EvenkeelText,
    spelled: *const u64,
    num_spelled: usize,
    flags: u32,
    out: *mut EvenkeelIds,
) -> i32 {
    *out = NO_IDS;
    guarded(|| {
        let spelled = if num_spelled == 0 { &[] } else { slice::from_raw_parts(spelled, num_spelled) };
        *out = encode(&*tokenizer, text, spelled, flags)?;
        Ok(())
    })
}

fn text_view(text: &str) -> EvenkeelText {
    EvenkeelText { bytes: text.as_ptr(), num_bytes: text.len() }
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_num_special_tokens(tokenizer: *const EvenkeelTokenizer) -> usize {
    (*tokenizer).special_tokens.len()
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_special_token(tokenizer: *const EvenkeelTokenizer, i: usize) -> EvenkeelText {
    text_view((&(*tokenizer).special_tokens).get(i).map_or("", String::as_str))
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_variables(tokenizer: *const EvenkeelTokenizer) -> EvenkeelText {
    text_view(&(*tokenizer).of_checkpoint.variables)
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_chat_template(tokenizer: *const EvenkeelTokenizer, name: EvenkeelText) -> EvenkeelText {
    text_view(str_of(name).ok().and_then(|name| (&(*tokenizer).of_checkpoint).template(name)).unwrap_or(""))
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_bos_token(tokenizer: *const EvenkeelTokenizer) -> EvenkeelText {
    text_view((&(*tokenizer).of_checkpoint).named("bos_token").unwrap_or(""))
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_text_end(tokenizer: *const EvenkeelTokenizer) -> i64 {
    (*tokenizer).of_checkpoint.text_end.map_or(-1, i64::from)
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_pad(tokenizer: *const EvenkeelTokenizer) -> i64 {
    (*tokenizer).of_checkpoint.pad.map_or(-1, i64::from)
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_token_to_id(tokenizer: *const EvenkeelTokenizer, token: EvenkeelText) -> i64 {
    let mut id = -1;
    guarded(|| {
        id = (*tokenizer).trusting.token_to_id(str_of(token)?).map_or(-1, i64::from);
        Ok(())
    });
    id
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_decode(
    tokenizer: *const EvenkeelTokenizer,
    ids: *const u32,
    num_ids: usize,
    out: *mut EvenkeelText,
) -> i32 {
    *out = text_view("");
    guarded(|| {
        let ids = if num_ids == 0 { &[] } else { std::slice::from_raw_parts(ids, num_ids) };
        let text = (*tokenizer).trusting.decode(ids, false).map_err(|error| error.to_string())?;
        DECODED.with(|slot| {
            let mut kept = slot.borrow_mut();
            *kept = text;
            *out = text_view(&kept);
        });
        Ok(())
    })
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_vocab_size(tokenizer: *const EvenkeelTokenizer) -> usize {
    let mut size = 0;
    guarded(|| {
        size = (*tokenizer).trusting.get_vocab_size(true);
        Ok(())
    });
    size
}

fn last_error() -> EvenkeelText {
    LAST_ERROR.with(|slot| {
        let text = slot.borrow();
        EvenkeelText { bytes: text.as_ptr(), num_bytes: text.len() }
    })
}

#[no_mangle]
pub extern "C" fn evenkeel_tokenizer_last_error() -> EvenkeelText {
    last_error()
}
