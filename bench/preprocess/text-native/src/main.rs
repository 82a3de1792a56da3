//! text-native TOKENIZER_JSON TEXTS SECONDS THREADS: texts tokenised, tokens, seconds of processor time of all threads,
//! and seconds by the clock. TEXTS holds one text after another, each behind its length as four little-endian bytes.

use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tokenizers::Tokenizer;

fn texts(path: &str) -> Vec<String> {
    let bytes = fs::read(path).expect("TEXTS can be read");
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        found.push(String::from_utf8(bytes[at + 4..at + 4 + length].to_vec()).expect("texts are UTF-8"));
        at += 4 + length;
    }
    found
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, now: *mut Timespec) -> i32;
}

const CLOCK_THREAD_CPUTIME_ID: i32 = 3;

fn thread_seconds() -> f64 {
    let mut now = Timespec { seconds: 0, nanoseconds: 0 };
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.seconds as f64 + 1e-9 * now.nanoseconds as f64
}

fn run(tokenizer: &Tokenizer, texts: &[String], limit: Duration) -> (u64, u64, f64) {
    let begin = Instant::now();
    let processor_begin = thread_seconds();
    let (mut done, mut ids) = (0, 0);
    while begin.elapsed() < limit {
        for text in texts {
            let encoding = tokenizer.encode_fast(text.as_str(), false).expect("a text");
            ids += encoding.get_ids().len() as u64;
        }
        done += texts.len() as u64;
    }
    (done, ids, thread_seconds() - processor_begin)
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    tokenizers::utils::parallelism::set_parallelism(false);
    let mut tokenizer = Tokenizer::from_file(&arguments[1]).expect("a tokenizer");
    tokenizer.set_encode_special_tokens(true);
    let texts = texts(&arguments[2]);
    let limit = Duration::from_secs_f64(arguments[3].parse().expect("seconds"));
    let threads: usize = arguments[4].parse().expect("threads");
    run(&tokenizer, &texts, limit / 10);
    let begin = Instant::now();
    let (done, ids, processor) = thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(|| run(&tokenizer, &texts, limit))).collect();
        all.into_iter().map(|one| one.join().unwrap()).fold((0, 0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2))
    });
    println!("{done} {ids} {processor} {}", begin.elapsed().as_secs_f64());
}
