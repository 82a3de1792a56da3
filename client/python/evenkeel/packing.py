"""The names under which frameworks take packed sequences. Values stay numpy; lengths are Python ints."""

import numpy as np


def _cu_seqlens(microbatch):
    if "cu_seqlens" not in microbatch:
        raise ValueError("the microbatch is not packed: it has no cu_seqlens (the phase's batching is `padded`)")
    return microbatch["cu_seqlens"]


def max_length(microbatch):
    """Tokens of the longest sequence."""
    lengths = np.diff(_cu_seqlens(microbatch))
    return int(lengths.max()) if len(lengths) else 0


def flash_attention_kwargs(microbatch):
    """Hugging Face's FlashAttentionKwargs, as DataCollatorWithFlattening gives them."""
    cu_seqlens, longest = _cu_seqlens(microbatch), max_length(microbatch)
    return {"cu_seq_lens_q": cu_seqlens, "cu_seq_lens_k": cu_seqlens, "max_length_q": longest, "max_length_k": longest}


def packed_seq_params(microbatch):
    """Keyword arguments of Megatron's PackedSeqParams."""
    cu_seqlens, longest = _cu_seqlens(microbatch), max_length(microbatch)
    return {"qkv_format": "thd", "cu_seqlens_q": cu_seqlens, "cu_seqlens_kv": cu_seqlens,
            "cu_seqlens_q_padded": cu_seqlens, "cu_seqlens_kv_padded": cu_seqlens,
            "max_seqlen_q": longest, "max_seqlen_kv": longest}


def text_positions(microbatch):
    """int64 [1, tokens]: the position of each token within its document, from 0. What a text model takes as
    position_ids, and the first of the four rows that an M-RoPE model takes."""
    bounds = np.asarray(_cu_seqlens(microbatch), np.int64)
    return (np.arange(bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds)))[None]


def shifted(labels, last=-100):
    """Labels for trainers that do not shift: the one at i is that of token i + 1, the last is `last`. A document's first
    label is -100, so nothing crosses into another document. Of weights of the loss the last is 0."""
    labels = np.asarray(labels)
    return np.concatenate([labels[..., 1:], np.full_like(labels[..., :1], last)], -1)


def document_ids(microbatch):
    """int64 [1, tokens]: number of the document a token belongs to, from 1 (NeMo's indexed attention mask)."""
    lengths = np.diff(_cu_seqlens(microbatch))
    return np.repeat(np.arange(1, len(lengths) + 1, dtype=np.int64), lengths)[None]
