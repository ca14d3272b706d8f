"""A spectrum that scrolls (a waterfall): rlx computes it on the GPU that pygfx draws with, and nothing goes through the host.

usage: python examples/12_waterfall.py [--window] [--wav sound.wav] [--frames 240] [--save picture.png]

Needs ``pip install pygfx pillow``, and glfw for --window; without --window it draws into memory. Each frame uploads its new
samples, 2 KiB. The short-time Fourier transform, its levels in dB and the scrolling happen in one graph whose
history is fed back on the device; one copy on the GPU puts it into the texture of the picture. In the end the
example does the same by reading the history back and uploading it, and prints what both take.
"""

import argparse
import sys
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np

import rlx

try:
    import pygfx
    import rendercanvas.offscreen
    import wgpu
    from PIL import Image
except (ImportError, AttributeError):
    sys.exit("this example draws with pygfx: pip install pygfx pillow glfw")

RATE, N_FFT, HOP, FRAMES = 16000, 1024, 256, 2
# The texture: one row per frame of the transform, 2048 bytes each. WebGPU copies rows of multiples of 256 bytes.
ROWS, BINS = 256, N_FFT // 2
FLOOR_DB = -90.0


class Waterfall:
    """The levels of the last ``ROWS`` frames, on the wgpu device of the program.

    Args:
        device: The ``wgpu.GPUDevice`` that draws.
    """

    def __init__(self, device: "wgpu.GPUDevice") -> None:
        g = rlx.Graph("waterfall")
        block = g.input("block", (FRAMES * HOP,))
        tail, history = g.input("tail", (N_FFT - HOP,)), g.input("history", (ROWS, BINS))
        samples = g.concat([tail, block], 0)
        bins = rlx.signal.stft(samples, N_FFT, HOP)  # real parts, then imaginary ones
        real, imaginary = bins[:, :BINS], bins[:, BINS + 1 : -1]
        scale = (4.0 / N_FFT) ** 2  # a sine of amplitude 1 under a Hann window is at 0 dB
        level = g.log((real * real + imaginary * imaginary) * scale + 1e-12) * (10.0 / np.log(10.0))
        shade = g.clip(1.0 - level / FLOOR_DB, 0.0, 1.0)
        scrolled = g.concat([history[FRAMES:], shade], 0)
        g.set_outputs([scrolled, samples[FRAMES * HOP :]])
        self.device = device
        self.compiled = rlx.compile(g, device)
        for index, name in enumerate(("history", "tail")):
            self.compiled.bind_gpu_handle(name, np.zeros(g.named(name).shape, np.float32))
            self.compiled.set_gpu_handle_feed(name, index)

    def draw_to(self, texture: "wgpu.GPUTexture", block: np.ndarray) -> None:
        """Enqueues the transform of new samples and the copy of the history into a texture."""
        self.compiled.run_gpu({"block": block})
        buffer, offset, _ = self.compiled.output_buffers[0]
        encoder = self.device.create_command_encoder()
        encoder.copy_buffer_to_texture(
            {"buffer": buffer, "offset": offset, "bytes_per_row": BINS * 4, "rows_per_image": ROWS},
            {"texture": texture},
            (BINS, ROWS, 1),
        )
        self.device.queue.submit([encoder.finish()])

    def draw_by_host(self, texture: "wgpu.GPUTexture", block: np.ndarray) -> None:
        """The same by way of the host: the history is read back and uploaded."""
        (history,) = self.compiled.run_read_outputs({"block": block}, [0])
        self.device.queue.write_texture(
            {"texture": texture}, history, {"bytes_per_row": BINS * 4}, (BINS, ROWS, 1)
        )

    def close(self) -> None:
        """Frees what rlx holds; the device stays the program's."""
        self.compiled.close()


class Picture:
    """A pygfx scene of one image.

    Args:
        canvas: Where it is drawn.
    """

    def __init__(self, canvas: "rendercanvas.BaseRenderCanvas") -> None:
        usage = wgpu.TextureUsage.COPY_DST | wgpu.TextureUsage.TEXTURE_BINDING
        self._texture = pygfx.Texture(dim=2, size=(BINS, ROWS), format="r32float", usage=usage)
        material = pygfx.ImageBasicMaterial(clim=(0, 1), map=pygfx.cm.inferno)
        self._scene = pygfx.Scene().add(pygfx.Image(pygfx.Geometry(grid=self._texture), material))
        self._camera = pygfx.OrthographicCamera(BINS, ROWS, maintain_aspect=False)
        self._camera.local.position = (BINS / 2 - 0.5, ROWS / 2 - 0.5, 1)
        self._camera.local.scale_y = -1  # the newest row, the last of the texture, is at the bottom
        self._renderer = pygfx.renderers.WgpuRenderer(canvas, pixel_ratio=1, ppaa="none")
        shared = pygfx.renderers.wgpu.get_shared()
        assert shared is not None, "the renderer has made it"
        self.device = shared.device

    @property
    def texture(self) -> "wgpu.GPUTexture":
        """The wgpu texture, which pygfx makes when it first draws."""
        if self._texture._wgpu_object is None:
            self.draw()
        result = self._texture._wgpu_object
        assert result is not None, "drawing has made it"
        return result

    def draw(self) -> None:
        """Draws the scene as it stands on the GPU by now."""
        self._renderer.render(self._scene, self._camera)


def sound_of(path: Path | None) -> np.ndarray:
    """Samples of a WAV file at 16 kHz, or ten seconds of sweeps and a chord."""
    if path is not None:
        with wave.open(str(path)) as file:
            if (file.getframerate(), file.getsampwidth()) != (RATE, 2):
                sys.exit(f"{path}: expected 16 bits at {RATE} Hz")
            raw = np.frombuffer(file.readframes(file.getnframes()), "<i2")
            return raw[:: file.getnchannels()].astype(np.float32) / 32768
    t = np.arange(10 * RATE) / RATE
    sweep = np.sin(2 * np.pi * (200 * t + 1800 * (t % 2.5) ** 2 / 2.5))
    chord = sum(np.sin(2 * np.pi * f * t) for f in (440, 660, 880)) * (np.sin(4 * t) > 0)
    noise = np.random.default_rng(0).normal(size=t.size)
    return (0.4 * sweep + 0.1 * chord + 0.003 * noise).astype(np.float32)


def blocks(samples: np.ndarray):
    """The sound, piece by piece, again and again."""
    size = FRAMES * HOP
    while True:
        for index in range(0, len(samples) - size + 1, size):
            yield samples[index : index + size]


def timed(draw, wait, picture: Picture, value, frames: int) -> float:
    """Microseconds of a frame's transform and transfer, of the frames one after the other."""
    start = time.perf_counter()
    for _ in range(frames):
        draw(picture.texture, next(value))
    wait()
    return (time.perf_counter() - start) / frames * 1e6


def canvas_of(window: bool) -> tuple[Any, Any]:
    """A canvas, and the loop that runs its window."""
    size = (2 * BINS, 2 * ROWS)
    if window:
        from rendercanvas.auto import RenderCanvas, loop

        return RenderCanvas(title="rlx waterfall", size=size, max_fps=30), loop
    return rendercanvas.offscreen.RenderCanvas(size=size, pixel_ratio=1), None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--window", action="store_true", help="open a window, until it is closed")
    parser.add_argument("--wav", type=Path, help="a sound of 16 bits at 16 kHz")
    parser.add_argument("--frames", type=int, default=240, help="frames drawn without a window")
    parser.add_argument("--save", type=Path, help="where the last frame goes")
    args = parser.parse_args()

    sound = blocks(sound_of(args.wav))
    canvas, loop = canvas_of(args.window)
    picture = Picture(canvas)
    waterfall = Waterfall(picture.device)

    def animate() -> None:
        waterfall.draw_to(picture.texture, next(sound))
        picture.draw()
        canvas.request_draw()

    canvas.request_draw(animate)
    if args.window:
        loop.run()
        waterfall.close()
        return
    for _ in range(args.frames):
        frame = np.asarray(canvas.draw())
    if args.save:
        Image.fromarray(frame[:, :, :3]).save(args.save)
    print(
        f"{args.frames} frames of {frame.shape[1]} x {frame.shape[0]} on {picture.device.adapter.info['device']}"
    )
    wait = waterfall.compiled.sync_pending
    there = timed(waterfall.draw_to, wait, picture, sound, 100)
    back = timed(waterfall.draw_by_host, wait, picture, sound, 100)
    print(f"a frame stays on the GPU: {there:.0f} us; read back and uploaded: {back:.0f} us")
    waterfall.close()


if __name__ == "__main__":
    main()
