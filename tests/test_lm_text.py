"""Samplers and tokenizers of rlx.lm: against the same steps by hand, one token at a time."""

import itertools
import math

import numpy as np
import pytest
import tiny_lm
from samples import looped

import rlx
from rlx.lm import Sampling
from rlx.lm.chat_template import render
from rlx.lm.token_sampling import Sampler
from rlx.lm.tokenizer import of_metadata

# --- samplers ---------------------------------------------------------------------------------------


def plain_probabilities(logits, recent, s):
    """The sampler's steps one token at a time."""
    scores = {token: float(logit) for token, logit in enumerate(logits)}
    for token in set(list(recent)[-s.repetition_window :] if s.repetition_window else recent):
        scores[token] = (
            scores[token] / s.repetition_penalty
            if scores[token] > 0
            else scores[token] * s.repetition_penalty
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
        sampler = Sampling(
            temperature=float(rng.choice([0.3, 1.0, 1.7])), top_k=int(rng.choice([0, 1, 5, 50, 70])),
            top_p=float(rng.choice([0.1, 0.7, 0.97, 1.0])), min_p=float(rng.choice([0, 0.01, 0.3])),
            repetition_penalty=float(rng.choice([1, 1.3, 0.8])), repetition_window=int(rng.choice([0, 4])),
        )  # fmt: skip
        recent = rng.integers(0, 50, 9).tolist()
        got = sampler.probabilities(logits, recent)
        np.testing.assert_allclose(got, plain_probabilities(logits, recent, sampler), atol=1e-12)
        retained.add(np.count_nonzero(got))
    assert len(retained) > 10


def test_draws_follow_the_probabilities(rng):
    logits = rng.normal(size=12)
    sampler = Sampling(temperature=1.2, top_k=8, top_p=1.0, min_p=0.0, seed=4)
    p, drawing = sampler.probabilities(logits), Sampler(sampling=sampler)
    counts = np.bincount([drawing.draw(logits) for _ in range(20_000)], minlength=12)
    assert not counts[p == 0].any()
    # Five standard deviations of a count.
    assert np.all(abs(counts - 20_000 * p) <= 5 * np.sqrt(20_000 * p * (1 - p)) + 1e-9)


def test_seeds_and_temperature_zero(rng):
    logits = rng.normal(size=100)
    first, again, other = ([s.draw(logits) for _ in range(30)] for s in map(_seeded, (1, 1, 2)))
    assert first == again != other
    assert greedy().draw(np.array([1.0, 3.0, 3.0])) == 1
    logits, penalty = np.array([1.0, 3.0, -1.0]), {"repetition_penalty": 4.0}
    assert greedy(**penalty).draw(logits, [1]) == 0
    assert greedy(**penalty, repetition_window=1).draw(logits, [1, 2]) == 1


def _seeded(seed):
    return Sampler(Sampling(temperature=2.0, seed=seed))


def greedy(**settings):
    return Sampler(Sampling(temperature=0.0, **settings))


@looped(
    "wrong",
    [
        {"temperature": -1.0},
        {"top_k": -1},
        {"top_p": 0.0},
        {"min_p": 2.0},
        {"repetition_penalty": 0.0},
        {"repetition_window": -1},
        {"seed": -1},
    ],
)
def test_settings_of_samplers_are_checked(wrong):
    with pytest.raises(rlx.InputError, match=next(iter(wrong))):
        Sampling(**wrong)


# --- the tokenizer ----------------------------------------------------------------------------------


def pieces(tokenizer, tokens):
    """Tokens by their names."""
    return [tokenizer.library.id_to_token(token) for token in tokens]


def streamed(tokenizer, tokens, before=()):
    """The pieces of text of tokens that come one by one."""
    stream = tokenizer.stream(before)
    pieces = [*(stream.add(token) for token in tokens), stream.rest()]
    return [piece for piece in pieces if piece]


def test_byte_level_tokens():
    tokenizer = of_metadata(tiny_lm.byte_vocabulary())
    result = tokenizer.encode("the other one")
    assert pieces(tokenizer, result) == ["<s>", "the", "Ġo", "the", "r", "Ġ", "on", "e"]
    assert tokenizer.encode("x</s>")[-1] in tokenizer.ends
    for text in ("the one", "Größe 漢字 🙂", "a\nb\t  c", ""):
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == text
        assert "".join(streamed(tokenizer, tokens)) == text
    # A character of four bytes is one piece.
    assert streamed(tokenizer, tokenizer.encode("a🙂")) == ["a", "🙂"]


def test_bytes_that_are_no_characters_pass_through(rng):
    tokenizer = of_metadata(sentence_pieces())
    first = 259 - 256  # of the tokens that are bytes
    re = tokenizer.library.token_to_id("re")
    told = streamed(tokenizer, [*(first + byte for byte in b"\xc3\xa9\xff"), re])
    assert told[0] == "é"
    assert told[-1].lstrip("\ufffd") == "re"
    assert streamed(tokenizer, [first + 0xC3]) == ["\ufffd"]
    for _ in range(50):
        tokens = [1, *rng.integers(259, 272, 60).tolist()]
        assert "".join(streamed(tokenizer, tokens)) == tokenizer.decode(tokens)
    garbage = "".join(streamed(tokenizer, [first + 0xFF] * 100))
    assert garbage == "\ufffd" * 100


def test_a_text_goes_on_behind_another():
    """No space comes before its first word, but the one that is there."""
    tokenizer = of_metadata(sentence_pieces())
    the = tokenizer.encode("the", whole=False)
    assert "".join(streamed(tokenizer, the)) == "the"
    assert "".join(streamed(tokenizer, the, tokenizer.encode("on"))) == " the"
    assert pieces(tokenizer, tokenizer.encode_behind("on", "re")) == ["re"]
    assert pieces(tokenizer, tokenizer.encode_behind("on", " the")) == ["▁the"]
    assert tokenizer.encode_behind("", "the") == the
    # A piece that spans both is not taken.
    assert pieces(tokenizer, tokenizer.encode_behind("t", "he")) == ["▁", "he"]
    behind = pieces(tokenizer, tokenizer.encode_behind("the</s>", "the"))
    assert behind == ["▁the"]


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
    tokenizer = of_metadata(tiny_lm.byte_vocabulary() | {"tokenizer.ggml.pre": pre})
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
    tokenizer = of_metadata(metadata)
    tokens, scores = (
        metadata["tokenizer.ggml.tokens"][259:],
        metadata["tokenizer.ggml.scores"][259:],
    )
    for _ in range(100):
        text = "".join(rng.choice(list("theron "), 12))
        got = tokenizer.encode(text)
        assert got[0] == tokenizer.begin == 1
        assert pieces(tokenizer, got[1:]) == best_merges(" " + text, tokens, scores)
        assert tokenizer.decode(got) == text
    got = tokenizer.encode("té")
    assert pieces(tokenizer, got[1:]) == ["▁t", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(got) == "té"
    assert "".join(streamed(tokenizer, got)) == "té"
    plain = of_metadata(sentence_pieces(add_space_prefix=False, add_bos_token=False))
    assert pieces(plain, plain.encode("the re")) == ["t", "he", "▁", "re"]
    assert plain.ends == {2}


@looped(
    ("metadata", "message"),
    [
        ({}, "no vocabulary"),
        (sentence_pieces(model="rwkv"), "no vocabulary"),
        (sentence_pieces(model=["llama"]), "model"),
        (sentence_pieces(scores=["1"]), "scores"),
        (sentence_pieces(token_type=["1"]), "token_type"),
        (sentence_pieces(add_bos_token=1), "add_bos_token"),
        (sentence_pieces(scores=np.float32([1])), "scores"),
        (sentence_pieces(token_type=np.int32([1])), "token_type"),
        (sentence_pieces(bos_token_id=999), "not in the vocabulary"),
        (sentence_pieces(tokens=["a", "a"]), "twice"),
        (tiny_lm.byte_vocabulary() | {"tokenizer.ggml.pre": "chatglm"}, "not known"),
        (
            sentence_pieces(model="t5", precompiled_charsmap=np.uint8([9, 0, 0, 0, 1])),
            "can't be used",
        ),
        (tiny_lm.byte_vocabulary() | {"tokenizer.ggml.merges": ["q q"]}, "a merge"),
    ],
)
def test_wrong_vocabularies_are_refused(metadata, message):
    with pytest.raises(rlx.ImportModelError, match=message):
        of_metadata(metadata)


def word_pieces():
    pieces = ["[UNK]", "[CLS]", "[SEP]", "▁the", "▁other", "▁un", "able", "s", "▁,"]
    return {
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": np.int32([3, 3, 3, 1, 1, 1, 1, 1, 1]),
        "tokenizer.ggml.cls_token_id": 1, "tokenizer.ggml.seperator_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip


def test_word_pieces():
    tokenizer = of_metadata(word_pieces())
    assert tokenizer.encode("The others, unable") == [1, 3, 4, 7, 8, 5, 6, 2]
    assert tokenizer.encode("zebra") == [1, 0, 2]
    assert tokenizer.decode([3, 4, 7, 5, 6]) == "the others unable"


def test_unigrams_take_the_pieces_of_the_largest_sum(rng):
    tokens = ["<unk>", "</s>", "▁", "t", "h", "e", "▁the", "th", "he", "▁t"]
    scores = np.float32([0, 0, -3, -4, -4, -4, -6, -5, -5.5, -5])
    tokenizer = of_metadata(
        {
            "tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.token_type": np.int32([2, 3, *[1] * 8]), "tokenizer.ggml.eos_token_id": 1,
        }
    )  # fmt: skip
    known = dict(zip(tokens, scores.tolist()))

    def best(text):
        sums = [(0.0, ())]
        for end in range(1, len(text) + 1):
            sums.append(
                max(
                    (sums[start][0] + known[text[start:end]], (*sums[start][1], text[start:end]))
                    for start in range(end)
                    if text[start:end] in known
                )
            )
        return list(sums[-1][1])

    for _ in range(50):
        text = "".join(rng.choice(list("the "), 8)).strip() or "t"
        got = tokenizer.encode(text)
        assert got[-1] == 1
        wanted = best("▁" + text.replace(" ", "▁"))
        assert sum(known[piece] for piece in pieces(tokenizer, got[:-1])) == pytest.approx(
            sum(known[piece] for piece in wanted)
        )


# --- chat templates ---------------------------------------------------------------------------------

TURN = [{"role": "user", "content": "Hi"}]


def test_templates_as_transformers_runs_them():
    template = (
        "{{ bos_token }}{%- for m in messages %}\n  {%- if m.role == 'system' %}{% continue %}{% endif %}\n"
        "{% generation %}<{{ m.role }}>{{ m.content | trim }}{% endgeneration %}{%- endfor %}"
        "{% if tools %}{{ tools | tojson(indent=1) }}{% endif %}{% if add_generation_prompt %}<a>{% endif %}"
    )
    messages = [{"role": "system", "content": "no"}, *TURN]
    assert render(template, messages, bos_token="<s>") == "<s><user>Hi<a>"
    tools = [{"name": "é"}]
    assert render(template, TURN, tools=tools, answer=False, bos_token="") == (
        '<user>Hi[\n {\n  "name": "é"\n }\n]'
    )
    assert render("{{ strftime_now('%Y') }}", TURN).isdigit()
    assert render("{{ 'ab' * 2 }}{{ 6 * 7 }}", TURN) == "abab42"


@looped(
    ("template", "message"),
    [
        ("{% if %}", "malformed"),
        ("{{ raise_exception('roles alternate') }}", "roles alternate"),
        ("{{ messages[0].content + 1 }}", "refuses"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% set x = messages.append(1) %}", "unsafe|not safe"),
        ("{% for i in range(99999999) %}{% endfor %}", "big"),
        ("{{ 'a' * 10 ** 11 }}", "power"),
        ("{{ 'a' * 100000000000 }}", "too large"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% for a in 'b' %}" * 30 + "{% endfor %}" * 30, "malformed"),
    ],
)
def test_templates_are_data(template, message):
    with pytest.raises(rlx.InputError, match=f"(?is){message}"):
        render(template, TURN)
