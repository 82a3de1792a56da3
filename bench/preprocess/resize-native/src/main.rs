//! Times `fast_image_resize` from memory to memory, one thread; called by bench/preprocess/resize.py.
//!
//!     resize-native WIDTH HEIGHT OUT_WIDTH OUT_HEIGHT TURNS avx2|best
//!
//! Prints the least processor time of a turn, in nanoseconds a source pixel. RGB of 8 bits, cubic with a = -1/2, which is
//! the crate's Catmull-Rom and Pillow's bicubic; the crate's weights have 16 bits, so its bytes are not Pillow's.

use fast_image_resize::images::Image;
use fast_image_resize::{CpuExtensions, FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call, which writes it.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let number = |i: usize| words[i].parse::<u32>().expect("a number");
    let (width, height) = (number(1), number(2));
    let mut state = 1u32;
    let pixels = (0..width as usize * height as usize * 3)
        .map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 24) as u8
        })
        .collect();
    let source = Image::from_vec_u8(width, height, pixels, PixelType::U8x3).expect("a picture");
    let mut result = Image::new(number(3), number(4), PixelType::U8x3);
    let mut resizer = Resizer::new();
    if words[6] == "avx2" {
        // SAFETY: the caller says that this processor has it.
        unsafe { resizer.set_cpu_extensions(CpuExtensions::Avx2) };
    }
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom));
    let mut least = f64::INFINITY;
    for _ in 0..number(5) {
        let begin = processor_seconds();
        resizer.resize(&source, &mut result, &options).expect("a resize");
        least = least.min(processor_seconds() - begin);
    }
    println!("{:.4}", least * 1e9 / (f64::from(width) * f64::from(height)));
}
