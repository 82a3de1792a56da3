//! The C interface that rust/tokenizer.h declares, over the `tokenizers` crate.
//!
//! Nothing unwinds out of here: a panic (the regular expression engine panics when it reaches its retry limit)
//! becomes an error of that call. A loaded tokenizer is immutable but for the model's own locked cache, so that
//! shared references may be used from many threads.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::slice;

use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{AddedToken, ModelWrapper, Tokenizer};

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
    /// The same for a text that does not begin a sequence, where that makes a difference.
    continuing: Option<Tokenizer>,
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
    ends: *const u64,
    num_ids: usize,
}

const NO_IDS: EvenkeelIds = EvenkeelIds { ids: ptr::null(), ends: ptr::null(), num_ids: 0 };

/// What the last call of encode on this thread found.
struct Found {
    ids: Vec<u32>,
    ends: Vec<u64>,
}

/// A very long text must not be paid for until its thread ends.
const KEPT_IDS: usize = 1 << 16;

thread_local! {
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
    static FOUND: RefCell<Found> = const { RefCell::new(Found { ids: Vec::new(), ends: Vec::new() }) };
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

/// Runs `body`; its error or panic becomes a code and the thread's last error.
fn guarded(body: impl FnOnce() -> Result<(), String>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => OK,
        Ok(Err(message)) => {
            remember(message);
            REFUSED
        }
        Err(payload) => {
            remember(panic_text(&*payload));
            PANICKED
        }
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

unsafe fn load(json: EvenkeelText, added: *const EvenkeelText, num_added: usize) -> Result<Box<EvenkeelTokenizer>, String> {
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
    let mut tokens = Vec::with_capacity(num_added);
    for i in 0..num_added {
        tokens.push(AddedToken::from(str_of(*added.add(i))?, true));
    }
    trusting.add_special_tokens(tokens).map_err(|error| error.to_string())?;
    let mut untrusting = trusting.clone();
    untrusting.set_encode_special_tokens(true);
    let mut pre_tokenizer = untrusting.get_pre_tokenizer().cloned();
    let continuing = pre_tokenizer.as_mut().is_some_and(without_first_prefix).then(|| {
        let mut continuing = untrusting.clone();
        continuing.with_pre_tokenizer(pre_tokenizer);
        continuing
    });
    Ok(Box::new(EvenkeelTokenizer { trusting, untrusting, continuing }))
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_load(
    json: EvenkeelText,
    added: *const EvenkeelText,
    num_added: usize,
    out: *mut *mut EvenkeelTokenizer,
) -> i32 {
    *out = ptr::null_mut();
    guarded(|| {
        *out = Box::into_raw(load(json, added, num_added)?);
        Ok(())
    })
}

/// # Safety
/// As tokenizer.h.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_tokenizer_free(tokenizer: *mut EvenkeelTokenizer) {
    if !tokenizer.is_null() {
        guarded(|| {
            drop(Box::from_raw(tokenizer));
            Ok(())
        });
    }
}

unsafe fn encode(tokenizer: &EvenkeelTokenizer, text: EvenkeelText, flags: u32) -> Result<EvenkeelIds, String> {
    let text = str_of(text)?;
    let chosen = match &tokenizer.continuing {
        _ if flags & UNTRUSTED == 0 => &tokenizer.trusting,
        Some(continuing) if flags & CONTINUES != 0 => continuing,
        _ => &tokenizer.untrusting,
    };
    let add_special_tokens = flags & ADD_SPECIAL_TOKENS != 0;
    let with_ends = flags & WITH_ENDS != 0;
    // Offsets cost time; without them the ids are the same.
    let encoding = if with_ends {
        chosen.encode(text, add_special_tokens)
    } else {
        chosen.encode_fast(text, add_special_tokens)
    }
    .map_err(|error| error.to_string())?;
    FOUND.with(|slot| {
        let found = &mut *slot.borrow_mut();
        refill(&mut found.ids, encoding.get_ids().iter().copied());
        let mut ends = ptr::null();
        if with_ends {
            refill(&mut found.ends, encoding.get_offsets().iter().map(|(_, end)| *end as u64));
            assert_eq!(found.ends.len(), found.ids.len());
            ends = found.ends.as_ptr();
        }
        Ok(EvenkeelIds { ids: found.ids.as_ptr(), ends, num_ids: found.ids.len() })
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
        *out = encode(&*tokenizer, text, flags)?;
        Ok(())
    })
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
pub unsafe extern "C" fn evenkeel_tokenizer_vocab_size(tokenizer: *const EvenkeelTokenizer) -> usize {
    let mut size = 0;
    guarded(|| {
        size = (*tokenizer).trusting.get_vocab_size(true);
        Ok(())
    });
    size
}

#[no_mangle]
pub extern "C" fn evenkeel_tokenizer_last_error() -> EvenkeelText {
    LAST_ERROR.with(|slot| {
        let text = slot.borrow();
        EvenkeelText { bytes: text.as_ptr(), num_bytes: text.len() }
    })
}
