"""Samplers and tokenizers of examples/llama: against the same steps by hand, one token at a time."""

import itertools
import math

import numpy as np
import pytest
from llama import Sampler, Tokenizer, tiny
from samples import looped

import rlx

# --- samplers ---------------------------------------------------------------------------------------


def plain_probabilities(logits, recent, s):
    """The sampler's steps one token at a time."""
    scores = {token: float(logit) for token, logit in enumerate(logits)}
    for token in set(list(recent)[-s.window :] if s.window else recent):
        scores[token] = (
            scores[token] / s.penalty if scores[token] > 0 else scores[token] * s.penalty
        )
    scores = {token: score / s.temperature for token, score in scores.items()}
    if s.top_k:
        least = sorted(scores.values(), reverse=True)[: s.top_k][-1]
        scores = {token: score for token, score in scores.items() if score >= least}
    top = max(scores.values())
    p = {token: math.exp(score - top) for token, score in scores.items()}
    total = math.fsum(p.values())
    retained, before = {}, 0.0
    for token in sorted(p, key=lambda token: (-p[token], token)):
        if before < s.top_p or s.top_p == 1:
            retained[token] = p[token] / total
        before += p[token] / total
    floor = s.min_p * max(retained.values())
    retained = {token: value for token, value in retained.items() if value >= floor}
    total = math.fsum(retained.values())
    return [retained.get(token, 0.0) / total for token in range(len(logits))]


def test_probabilities_are_those_of_the_steps(rng):
    retained = set()
    for trial in range(200):
        logits = rng.normal(size=50) * 3
        if trial % 4 == 0:
            logits = np.round(logits)  # ties
        sampler = Sampler(
            temperature=float(rng.choice([0.3, 1.0, 1.7])), top_k=int(rng.choice([0, 1, 5, 50, 70])),
            top_p=float(rng.choice([0.1, 0.7, 0.97, 1.0])), min_p=float(rng.choice([0, 0.01, 0.3])),
            penalty=float(rng.choice([1, 1.3, 0.8])), window=int(rng.choice([0, 4])),
        )  # fmt: skip
        recent = rng.integers(0, 50, 9).tolist()
        got = sampler.probabilities(logits, recent)
        np.testing.assert_allclose(got, plain_probabilities(logits, recent, sampler), atol=1e-12)
        retained.add(np.count_nonzero(got))
    assert len(retained) > 10


def test_draws_follow_the_probabilities(rng):
    logits = rng.normal(size=12)
    sampler = Sampler(temperature=1.2, top_k=8, top_p=1.0, min_p=0.0, seed=4)
    p = sampler.probabilities(logits)
    counts = np.bincount([sampler.draw(logits) for _ in range(20_000)], minlength=12)
    assert not counts[p == 0].any()
    # Five standard deviations of a count.
    assert np.all(abs(counts - 20_000 * p) <= 5 * np.sqrt(20_000 * p * (1 - p)) + 1e-9)


def test_seeds_and_temperature_zero(rng):
    logits = rng.normal(size=100)
    first, again, other = ([s.draw(logits) for _ in range(30)] for s in map(_seeded, (1, 1, 2)))
    assert first == again != other
    assert Sampler(temperature=0).draw([1.0, 3.0, 3.0]) == 1
    assert Sampler(temperature=0, penalty=4.0).draw([1.0, 3.0, -1.0], [1]) == 0
    assert Sampler(temperature=0, penalty=4.0, window=1).draw([1.0, 3.0, -1.0], [1, 2]) == 1


def _seeded(seed):
    return Sampler(temperature=2.0, seed=seed)


@looped(
    "wrong",
    [
        {"temperature": -1},
        {"top_k": -1},
        {"top_p": 0},
        {"min_p": 2},
        {"penalty": 0},
        {"window": -1},
    ],
)
def test_settings_of_samplers_are_checked(wrong):
    with pytest.raises(rlx.InputError, match=next(iter(wrong))):
        Sampler(**wrong)


# --- the tokenizer ----------------------------------------------------------------------------------


def test_byte_level_tokens():
    tokenizer = Tokenizer(tiny.byte_vocabulary())
    names = tokenizer.tokens
    result = tokenizer.encode("the other one")
    assert [names[token] for token in result] == ["<s>", "the", "Ġo", "the", "r", "Ġ", "on", "e"]
    assert tokenizer.encode("x</s>")[-1] in tokenizer.ends
    for text in ("the one", "Größe 漢字 🙂", "a\nb\t  c", ""):
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == text
        assert "".join(tokenizer.stream(tokens)) == text
    # A character of four bytes is one piece.
    assert list(tokenizer.stream(tokenizer.encode("a🙂"))) == ["a", "🙂"]


@looped(
    ("pre", "text", "parts"),
    [
        ("gpt-2", "it's 12345", ["it", "'s", "Ġ12345"]),
        ("llama-bpe", "it's 12345", ["it", "'s", "Ġ", "123", "45"]),
        ("smollm", "it's 123", ["it", "'s", "Ġ", "1", "2", "3"]),
        ("qwen2", "IT'S 12", ["IT", "'S", "Ġ", "1", "2"]),
        ("tekken", "helloWorld 12", ["hello", "World", "Ġ", "1", "2"]),
    ],
)
def test_texts_are_cut_as_the_file_says(pre, text, parts):
    tokenizer = Tokenizer(tiny.byte_vocabulary() | {"tokenizer.ggml.pre": pre})
    result = tokenizer.library.pre_tokenizer.pre_tokenize_str(text)
    assert [part for part, _ in result] == parts


def sentence_pieces(**changes):
    pieces = ["▁", "t", "h", "e", "r", "o", "n", "▁t", "he", "▁the", "re", "er", "on"]
    scores = [-20.0] * 7 + [-1.0, -2.0, -3.0, -4.0, -3.5, -5.0]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, *pieces]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.float32([0] * 259 + scores),
        "tokenizer.ggml.token_type": np.int32([2, 3, 3, *[6] * 256, *[1] * 13]),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.ggml.{name}": value for name, value in changes.items()},
    }


def best_merges(text, tokens, scores):
    """SentencePiece's rule by hand: again and again the pair of the best piece, leftmost first."""
    parts, score = list(text.replace(" ", "▁")), dict(zip(tokens, scores))
    while True:
        pairs = [
            (-score[a + b], index)
            for index, (a, b) in enumerate(itertools.pairwise(parts))
            if a + b in score
        ]
        if not pairs:
            return parts
        position = min(pairs)[1]
        parts[position : position + 2] = [parts[position] + parts[position + 1]]


def test_sentence_pieces_are_merged_by_their_scores(rng):
    metadata = sentence_pieces()
    tokenizer = Tokenizer(metadata)
    tokens, scores = (
        metadata["tokenizer.ggml.tokens"][259:],
        metadata["tokenizer.ggml.scores"][259:],
    )
    for _ in range(100):
        text = "".join(rng.choice(list("theron "), 12))
        got = tokenizer.encode(text)
        assert got[0] == tokenizer.begin == 1
        assert [tokenizer.tokens[index] for index in got[1:]] == best_merges(
            " " + text, tokens, scores
        )
        assert tokenizer.decode(got) == text
    got = tokenizer.encode("té")
    assert [tokenizer.tokens[index] for index in got[1:]] == ["▁t", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(got) == "té"
    assert "".join(tokenizer.stream(got)) == "té"
    plain = Tokenizer(sentence_pieces(add_space_prefix=False, add_bos_token=False))
    assert [plain.tokens[index] for index in plain.encode("the re")] == ["t", "he", "▁", "re"]
    assert plain.ends == {2}


@looped(
    ("metadata", "message"),
    [
        ({}, "no vocabulary"),
        (sentence_pieces(model="bert"), "no vocabulary"),
        (sentence_pieces(model=["llama"]), "model"),
        (sentence_pieces(scores=["1"]), "scores"),
        (sentence_pieces(token_type=["1"]), "token_type"),
        (sentence_pieces(add_bos_token=1), "add_bos_token"),
        (sentence_pieces(scores=np.float32([1])), "scores"),
        (sentence_pieces(token_type=np.int32([1])), "token_type"),
        (sentence_pieces(bos_token_id=999), "not in the vocabulary"),
        (sentence_pieces(tokens=["a", "a"]), "twice"),
        (tiny.byte_vocabulary() | {"tokenizer.ggml.pre": "chatglm"}, "not known"),
        (tiny.byte_vocabulary() | {"tokenizer.ggml.merges": ["q q"]}, "a merge"),
    ],
)
def test_wrong_vocabularies_are_refused(metadata, message):
    with pytest.raises(rlx.ImportModelError, match=message):
        Tokenizer(metadata)
