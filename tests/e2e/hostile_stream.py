#!/usr/bin/env python3
"""Streams folders of odd and damaged media through real processes, in four ways that must agree.

    EVENKEEL_BIN=build/release/cli/evenkeel tests/e2e/hostile_stream.py OUT FOLDER...

Every file becomes a sample of its own with a caption. Each way indexes the shards from nothing, serves them and fetches
them once: isolated, in the worker's own process, with AVX2 alone, and with the baseline's instructions. The digest of the
index, the exclusions and the digest of every delivered byte must be the same, no decoder process may have been replaced
and no attempt may have failed. Prints what became of each kind. Exit code 1: something differs or failed. Not part of
the normal run: tests/hostile_corpora calls it.
"""

import collections
import io
import json
import pathlib
import sys
import tarfile

import harness
import prometheus

SUFFIXES = {"jpg", "jpeg", "png", "webp", "wav", "flac", "mp3", "m4a", "aac", "ac3", "ogg", "oga", "opus", "mka", "mp4",
            "m4v", "mov", "avi", "webm", "mkv"}
MAX_BYTES = 64 << 20
SAMPLES_PER_SHARD = 500
BATCH = 32
BASELINE = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4,-AVX2_Usable,-FMA_Usable,-AVX512F_Usable",
            "JSIMD_FORCESSE2": "1", "EVENKEEL_CPU": "baseline"}
WAYS = {"isolated": ("all", {}), "in one process": ("off", {}), "AVX2 alone": ("off", {"EVENKEEL_CPU": "avx2"}),
        "baseline": ("all", BASELINE)}


def media(folders):
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.suffix[1:].lower() in SUFFIXES and path.is_file() and path.stat().st_size <= MAX_BYTES:
                yield path


def pack(out, folders):
    """Writes the shards; returns how many, and the kind of each sample by its name in reports."""
    kinds, tar, shards = {}, None, 0
    for number, path in enumerate(media(folders)):
        if number % SAMPLES_PER_SHARD == 0:
            if tar is not None:
                tar.close()
            tar = tarfile.open(out / f"hostile-{shards:03d}.tar", "w", format=tarfile.USTAR_FORMAT)
            shards += 1
        suffix = path.suffix[1:].lower()
        for end, data in ((suffix, path.read_bytes()), ("txt", path.name.encode("ascii", "replace"))):
            member = tarfile.TarInfo(f"{number:06d}.{end}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        kinds[f"hostile/hostile-{shards - 1:03d}.tar/{number:06d}"] = suffix
    if tar is None:
        sys.exit("no media below these folders")
    tar.close()
    return shards, kinds


def stream(out, shards, name):
    """What one way makes of the shards: (index digest, exclusions, chain of everything delivered, replaced, errors)."""
    isolation, environment = WAYS[name]
    folder = name.replace(" ", "-")
    job = harness.write_job(out / f"{folder}.yaml", [("hostile", f"hostile-{{000..{shards - 1:03d}}}.tar", 1)], ranks=2,
                            batch=f"{{samples: {BATCH}}}", index=f"index-{folder}")
    done = harness.run("index", "--job", job, "--json", "--max-excluded", "100%", "--isolation", isolation, env=environment, timeout=3600)
    summary = json.loads(done.stdout)
    steps = -(-summary["samples"] // BATCH)
    worker = harness.Worker(job, "--isolation", isolation, "--metrics", "127.0.0.1:0", env=environment)
    try:
        got = harness.Fetch(worker.address, job, "--ranks", "0-1", "--steps", steps).finish(timeout=3600)
        metrics = prometheus.scrape(worker.facts["metrics"])
    finally:
        worker.kill()
    replaced = metrics["evenkeel_decoder_restarts_total"].by("reason")
    errors = metrics["evenkeel_errors_total"].by("reason")
    return summary, got.chain, {reason: n for reason, n in replaced.items() if n}, {r: n for r, n in errors.items() if n}


def report(kinds, summary):
    excluded = {entry["sample"]: entry["reason"] for entry in summary["exclusions"]}
    table = collections.defaultdict(collections.Counter)
    for sample, suffix in kinds.items():
        table[suffix][excluded.get(sample, "taken")] += 1
    for suffix, counts in sorted(table.items()):
        print(f"  {suffix:5} " + ", ".join(f"{n} {reason}" for reason, n in sorted(counts.items())))


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    shards, kinds = pack(out, sys.argv[2:])
    failed, first = False, None
    for name in WAYS:
        summary, chain, replaced, errors = stream(out, shards, name)
        line = (summary["digest"], json.dumps(summary["exclusions"]), chain, json.dumps(errors, sort_keys=True))
        if first is None:
            first = line
            report(kinds, summary)
        attempts = [reason for reason in errors if reason.startswith("attempt_")]
        wrong = "DIFFERS " if line != first else ""
        if wrong or replaced or attempts:
            failed = True
        print(f"{name}: {wrong}{len(kinds)} files, {summary['samples']} taken, index {summary['digest']}, "
              f"stream {chain}, bad when decoded {errors or 'none'}, decoders replaced {replaced or 'none'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
