"""Conversations: what is computed once, kept, taken back, saved and cancelled."""

import asyncio
import gc
import threading

import numpy as np
import pytest
import tiny_lm
from lm_reference import Reference
from samples import looped

import rlx
from rlx.backends.executable import Done
from rlx.lm import Generation, Sampling
from rlx.lm.chat_template import render
from rlx.lm.generation import _waiting
from rlx.lm.token_cache import TokenCache
from rlx.lm.token_sampling import Sampler

pytestmark = pytest.mark.by_program


def sentence_model(seed):
    """A model whose vocabulary has words with a space before them."""
    from test_lm_text import sentence_pieces

    vocabulary = sentence_pieces() | {"tokenizer.chat_template": tiny_lm.TEMPLATE}
    return tiny_lm.model(
        types=("Q8_0",), layers=1, seed=seed, vocabulary=vocabulary, __context_length=400
    )


EXACT = rlx.CompileOptions()  # the CPU rounds rows by default
GREEDY = {"temperature": 0.0, "max_tokens": 6}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_lm.model(types=("Q8_0",), layers=1, __context_length=400))
    return path


@pytest.fixture
def model(path, target_device):
    with rlx.lm.load(path, target_device, options=EXACT) as model:
        yield model


def anew(model, answer):
    """The tokens that follow an answer's prompt where nothing of it was computed before."""
    cache = model.take([])
    cache.rewind(0)
    ends = model.tokenizer.ends
    settings = Sampling(temperature=0.0)
    again = Generation(lambda: cache, model.tokenizer, answer.prompt, settings, 6, ends=ends)
    tokens = list(again.ids())
    model.give_back(cache)
    return tokens


def test_each_token_of_a_conversation_is_computed_once(model):
    with model.chat(system="the one") as chat:
        whole = 0
        for turn in range(6):
            answer = chat.send(f"other {turn}", **GREEDY)
            text = answer.read()
            assert text == answer.text == chat.messages[-1]["content"]
            # The last token that was drawn is read with the next message, if it did not end the answer.
            whole = len(answer.prompt) + len(answer.tokens) - (answer.reason == "length")
            assert chat.tokens_computed == whole
            assert anew(model, answer) == answer.tokens
        assert len(chat.messages) == 13
        assert whole > 100


def saying(path, monkeypatch, *names):
    """A model whose answers are such tokens."""
    model = rlx.lm.load(path, "cpu")
    tokens = [model.tokenizer.library.token_to_id(name) for name in names]
    assert None not in tokens

    def draw(self, logits, recent=()):
        self.said = getattr(self, "said", -1) + 1
        return tokens[self.said]

    monkeypatch.setattr(Sampler, "draw", draw)
    monkeypatch.setattr(Sampling, "on_device", False)
    return model


def test_prompts_are_the_tokens_of_all_messages(path, monkeypatch):
    model = saying(path, monkeypatch, "the", "Ġo", "the", "r", "</s>")
    with model, model.chat(system="the one") as chat:
        for turn in range(4):
            answer = chat.send(f"other {turn}", temperature=0.0)
            text = answer.read()
            assert answer.reason == "stop"
            assert model.detokenize(answer.prompt).endswith(f"other {turn} <assistant> ")
            whole = render(model.tokenizer.chat_template, chat.messages[:-1])
            assert model.detokenize(answer.prompt) == model.detokenize(model.tokenize(whole))
            assert chat.messages[-1]["content"] == text


def test_a_vocabulary_that_puts_a_space_before_words(tmp_path, monkeypatch):
    path = tmp_path / "pieces.gguf"
    path.write_bytes(sentence_model(8))
    model = saying(path, monkeypatch, "▁the", "re", "on", "▁t", "he", "</s>")
    with model, model.chat(system="the one") as chat:
        for turn in ("the", "on the", "other"):
            answer = chat.send(turn, temperature=0.0)
            answer.read()
            whole = render(model.tokenizer.chat_template, chat.messages[:-1])
            assert model.detokenize(answer.prompt) == model.detokenize(model.tokenize(whole))
            # What was read before is not read again.
            assert chat.tokens_computed == len(answer.prompt) + len(answer.tokens)


def test_undo_and_the_same_message_again(model):
    with model.chat() as chat:
        chat.send("the", **GREEDY).read()
        first = chat.send("other", **GREEDY).read()
        chat.undo()
        assert len(chat.messages) == 2
        computed = chat.tokens_computed
        assert chat.send("other", **GREEDY).read() == first
        assert chat.tokens_computed - computed < 40
        chat.undo()
        chat.undo()
        assert chat.messages == []
        with pytest.raises(rlx.InputError, match="no message"):
            chat.undo()


def test_undo_brings_back_what_was_forgotten(path):
    model = rlx.lm.load(path, "cpu", context=120, options=EXACT)
    with model, model.chat(system="the one") as chat:
        while chat.messages[1:2] == [] or chat.messages[1]["content"] == "other 0":
            before = list(chat.messages)
            chat.send(f"other {len(before)}" if before[1:] else "other 0", **GREEDY).read()
        chat.undo()
        assert chat.messages == before


def test_a_message_that_fails_changes_nothing(model, monkeypatch):
    with model.chat(system="the") as chat:
        chat.send("one", **GREEDY).read()
        messages = list(chat.messages)
        for wrong in ({"max_tokens": 0}, {"max_tokens": None}, {"stop": "x"}, {"top_k": -1}):
            with pytest.raises(rlx.InputError):
                chat.send("other", **wrong)
        with pytest.raises(rlx.InputError, match="does not fit"):
            chat.send("other " * 400)
        with pytest.raises(rlx.InputError, match="role"):
            chat.send({"content": "no role"})
        assert chat.messages == messages
        with monkeypatch.context() as patch:
            patch.setattr(TokenCache, "_inputs", _fails)
            answer = chat.send("other", **GREEDY)
            with pytest.raises(MemoryError):
                answer.read()
            assert answer.reason == "error"
        assert chat.messages == messages
        answer = chat.send("other", **GREEDY)
        answer.read()
        assert anew(model, answer) == answer.tokens
        with pytest.raises(rlx.InputError, match="role"):
            model.chat(messages=["no mapping"])


def _fails(*_, **__):
    raise MemoryError("no room")


def test_caches_come_back(model):
    """From answers that end, fail, are left, or never begin, and from conversations that nobody closes."""
    model.generate("the", max_tokens=2).read()
    for _ in model.generate("the", max_tokens=9):
        break
    for wrong in ({"max_tokens": 0}, {"stop": "x"}):
        with pytest.raises(rlx.InputError):
            model.generate("the", **wrong)
    model.generate("the")
    answer = model.generate([1, 2, 3], max_tokens=9)
    tokens = answer.ids()
    next(tokens)
    answer.close()
    assert list(tokens) == []
    chat = model.chat()
    chat.send("the", **GREEDY).read()
    assert len(model._lent) == 1
    del chat
    gc.collect()
    assert model._lent == []
    assert len(model._free) == 1


def test_an_answer_that_is_left_does_not_stop_another_call(path):
    """It may be collected while the model's lock is held."""
    with rlx.lm.load(path, "cpu") as model:
        for index in range(3):
            for _ in model.generate("the", seed=index):
                break
            gc.collect()
            model.embed(["the other", "one"])
        assert model._lent == []


def test_two_threads_talk_at_once(model):
    alone = []
    for word in ("one", "other"):
        with model.chat(system="the one is") as chat:
            alone.append([chat.send(word, **GREEDY).read() for _ in range(3)])
    together = [None, None]

    def talk(index, word):
        with model.chat(system="the one is") as chat:
            together[index] = [chat.send(word, **GREEDY).read() for _ in range(3)]

    threads = [threading.Thread(target=talk, args=item) for item in enumerate(("one", "other"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_saved_conversations_go_on(model, tmp_path):
    file = tmp_path / "chat.kv"
    with model.chat(system="the") as chat:
        chat.send("one", **GREEDY).read()
        chat.save(file)
        wanted = chat.send("other", **GREEDY).read()
        messages = list(chat.messages)
    with model.chat(load=file) as chat:
        assert chat.send("other", **GREEDY).read() == wanted
        assert chat.messages == messages
        assert chat.tokens_computed < 40


def test_files_that_are_no_saved_conversation(model, tmp_path):
    file = tmp_path / "chat.kv"
    for content in (b"", b"PK\x03\x04", b"\x93NUMPY"):
        file.write_bytes(content)
        with pytest.raises(rlx.ModelFileError, match="no saved chat"):
            model.chat(load=file)
    np.savez(tmp_path / "other.npz", header=np.array('{"version": 1}'))
    with pytest.raises(rlx.ModelFileError, match="no saved chat"):
        model.chat(load=tmp_path / "other.npz")
    other = tmp_path / "other.gguf"
    other.write_bytes(tiny_lm.model(types=("F32",), layers=1, width=32))
    with rlx.lm.load(other, "cpu") as another, another.chat() as chat:
        chat.send("the", **GREEDY).read()
        chat.save(file)
    with pytest.raises(rlx.ModelFileError, match="another model"):
        model.chat(load=file)
    with pytest.raises(rlx.InputError, match="load"):
        model.chat(system="the", load=file)


def test_saving_keeps_the_old_file_until_the_new_one_is_whole(model, path, tmp_path, monkeypatch):
    file = tmp_path / "chat.kv"
    with model.chat() as chat:
        chat.send("one", **GREEDY).read()
        chat.save(file)
        whole = file.read_bytes()
        answer = chat.send("other", **GREEDY)
        with pytest.raises(rlx.InputError, match="still goes on"):
            chat.save(file)
        answer.read()
        monkeypatch.setattr(np, "savez", _fails)
        with pytest.raises(MemoryError):
            chat.save(file)
        assert file.read_bytes() == whole
        assert [item.name for item in tmp_path.iterdir() if "kv" in item.name] == ["chat.kv"]
    with rlx.lm.load(path, "cpu", context=10) as small:
        with pytest.raises(rlx.ModelFileError, match="does not fit"):
            small.chat(load=file)
        assert small._lent == []


def test_conversations_share_the_beginning(model):
    system = "the other one is " * 4
    with model.chat(system=system) as first, model.chat(system=system) as second:
        first.send("one", **GREEDY).read()
        answer = second.send("other", **GREEDY)
        answer.read()
        assert second.tokens_computed < len(answer.prompt) - 20
    assert anew(model, answer) == answer.tokens


def test_stop_texts_and_tokens(model):
    with model.chat() as chat:
        whole = chat.send("the", **GREEDY, seed=3).read()
        chat.undo()
        stop = whole[2:4]
        answer = chat.send("the", **GREEDY, stop=["never said", stop])
        assert answer.read() == whole[: whole.index(stop)]
        assert (answer.reason, answer.cut) == ("stop", True)
        answer = chat.send("other", **GREEDY)
        answer.read()
        assert anew(model, answer) == answer.tokens
    assert [_waiting(text, ["abc", "bx"]) for text in ("", "a", "ab", "abd", "zb")] == [
        0,
        1,
        2,
        0,
        1,
    ]


def test_the_pieces_of_an_answer_are_its_text(model):
    answer = model.generate("the other", max_tokens=30, temperature=1.5, seed=4, stop=["zz"])
    pieces = list(answer)
    assert "".join(pieces) == answer.text
    assert answer.reason in ("length", "stop")
    assert 0 < answer.first_seconds <= answer.seconds

    async def read():
        later = model.generate("the other", max_tokens=30, temperature=1.5, seed=4, stop=["zz"])
        return [piece async for piece in later]

    assert asyncio.run(read()) == pieces


def test_a_task_that_is_cancelled(model):
    """The thread that computes goes on for a step; closing waits for it."""

    async def read(chat):
        async for _ in chat.send("the", max_tokens=390, temperature=0.0):
            pass

    async def main():
        with model.chat() as chat:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(read(chat), 0.05)
            chat.cancel()
        return chat

    chat = asyncio.run(main())
    assert len(chat.messages) == 2
    assert model._lent == []


def test_logits_that_are_no_numbers(model, monkeypatch):
    def nothing(self, tokens, *_):
        self._was_read(np.array(tokens))
        return Done([np.int32([-1])])

    monkeypatch.setattr(TokenCache, "draw", nothing)
    monkeypatch.setattr(TokenCache, "read", lambda *_: np.full((1, 300), np.nan, "f4"))
    for temperature in (0.0, 1.0):
        with pytest.raises(rlx.InputError, match="not finite"):
            model.generate("the", temperature=temperature).read()


@pytest.mark.parametrize("settings", [
    {"temperature": 0.0}, {"temperature": 1.5, "seed": 4}, {"top_k": 63, "top_p": 0.5, "seed": 5},
    {"temperature": 3.0, "top_k": 9, "min_p": 0.3, "repetition_penalty": 1.2, "seed": 6},
    {"temperature": 0.0, "repetition_penalty": 9.0, "repetition_window": 1},
])  # fmt: skip
def test_the_device_draws_as_the_host_does(model, monkeypatch, target_device, settings):
    ahead, started = [], TokenCache.draw_ahead
    monkeypatch.setattr(TokenCache, "draw_ahead", lambda *a: ahead.append(1) or started(*a))
    prompt = model.tokenize("the one or the other")
    drawn = list(model.generate(prompt, max_tokens=24, **settings).ids())
    assert len(ahead) == (0 if target_device == "cpu" else 23)
    monkeypatch.setattr(Sampling, "on_device", False)
    assert drawn == list(model.generate(prompt, max_tokens=24, **settings).ids())


def test_cancelling(model):
    with model.chat() as chat:
        answer = chat.send("the", max_tokens=300, temperature=0.0)
        next(answer)
        with pytest.raises(rlx.InputError, match="still goes on"):
            chat.send("other")
        thread = threading.Timer(0.005, chat.cancel)
        thread.start()
        answer.read()
        thread.join()
        assert answer.reason == "cancelled"
        assert len(answer.tokens) < 300
        assert chat.messages[-1]["content"] == answer.text
        answer = chat.send("other", **GREEDY)
        answer.read()
        assert anew(model, answer) == answer.tokens


def test_old_messages_go_where_the_context_is_full(path):
    model = rlx.lm.load(path, "cpu", context=120, options=EXACT)
    with model, model.chat(system="the one") as chat:
        for turn in range(5):
            answer = chat.send(f"other {turn}", **GREEDY)
            answer.read()
        assert chat.messages[0]["role"] == "system"
        assert chat.messages[1]["content"] != "other 0"
        assert anew(model, answer) == answer.tokens
        with pytest.raises(rlx.InputError, match="does not fit"):
            chat.send("other " * 40)
        answer = chat.send("one", max_tokens=200, temperature=0.0)
        cache = model._lent[0]
        shifts = [answer.tokens.copy() for _ in answer if len(cache.tokens) < len(answer.prompt)]
        assert answer.reason == "length" or shifts
        assert cache.computed > 120 + 60
        # What is left begins as the conversation does, and continues with the newest tokens.
        assert cache.tokens[: cache.keep] == answer.prompt[: cache.keep]
        assert cache.tokens[-3:] == answer.tokens[-4:-1]


def test_a_full_cache_keeps_its_first_tokens(model):
    cache, reference = model.take([]), Reference(model.file, cache=np.float16)
    cache.keep = 20
    cache.continue_with(list(range(100)))
    logits = cache.shift()
    assert cache.tokens == [*range(20), *range(60, 100)]
    wanted = reference.logits(cache.tokens)[-1]
    assert np.linalg.norm(logits - wanted) <= 1e-4 * np.linalg.norm(wanted)


@looped(
    ("settings", "message"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": "x"}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"temprature": 1.0}, "no such setting"),
        ({"top_p": 2.0}, "top_p"),
    ],
)
def test_settings_are_checked(path, settings, message):
    with rlx.lm.load(path, "cpu") as model, model.chat() as chat:
        for ask in (model.generate, chat.send):
            with pytest.raises(rlx.InputError, match=message):
                ask("the", **settings)
        assert chat.messages == []
        assert chat.send("the", **GREEDY).read()
