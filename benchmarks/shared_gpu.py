"""Measures the gain of leaving results on the GPU that draws them; the table of docs/guides/sharing_gpu.md.

usage: python benchmarks/shared_gpu.py [--rounds 9] [--frames 60]

A graph computes a picture of levels, as a spectrum that scrolls has one, and the picture goes into a texture of the same
wgpu device: by one copy on the GPU behind ``run_gpu``, or read back by ``run`` and uploaded. Times are medians over
rounds, in microseconds for each frame of a row of frames, the two ways in turn.
"""

import argparse
import statistics
import time

import numpy as np
import wgpu

import rlx

SIZES = ((64, 256), (256, 512), (512, 1024), (1024, 2048))


def picture_graph(rows, columns):
    g = rlx.Graph("picture")
    new, history = g.input("new", (columns,)), g.input("history", (rows, columns))
    level = g.clip(g.log(new * new + 1e-9) * 0.05 + 1.0, 0.0, 1.0)
    g.set_outputs([g.concat([history[1:], g.reshape(level, (1, columns))], 0)])
    return g


class FrameLoop:
    def __init__(self, device, rows, columns):
        self.device, self.size, self.pitch = device, (columns, rows, 1), columns * 4
        self.compiled = rlx.compile(picture_graph(rows, columns), device)
        self.compiled.bind_gpu_handle("history", np.zeros((rows, columns), np.float32))
        self.compiled.set_gpu_handle_feed("history", 0)
        usage = wgpu.TextureUsage.COPY_DST | wgpu.TextureUsage.COPY_SRC
        self.texture = device.create_texture(size=self.size, format="r32float", usage=usage)
        self.new = np.random.default_rng(0).normal(size=columns).astype(np.float32)

    def there(self):
        self.compiled.run_gpu({"new": self.new})
        buffer, offset, _ = self.compiled.output_buffers[0]
        encoder = self.device.create_command_encoder()
        source = {"buffer": buffer, "offset": offset, "bytes_per_row": self.pitch}
        encoder.copy_buffer_to_texture(
            {**source, "rows_per_image": self.size[1]}, {"texture": self.texture}, self.size
        )
        self.device.queue.submit([encoder.finish()])

    def by_host(self):
        (picture,) = self.compiled.run_raw({"new": self.new})
        layout = {"bytes_per_row": self.pitch, "rows_per_image": self.size[1]}
        self.device.queue.write_texture({"texture": self.texture}, picture, layout, self.size)

    def drawn(self):
        layout = {"bytes_per_row": self.pitch, "rows_per_image": self.size[1]}
        return bytes(self.device.queue.read_texture({"texture": self.texture}, layout, self.size))

    def timed(self, draw, frames):
        start = time.perf_counter_ns()
        for _ in range(frames):
            draw()
        self.drawn()  # waits for all of them
        return (time.perf_counter_ns() - start) / frames / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--frames", type=int, default=60)
    args = parser.parse_args()
    adapter = wgpu.gpu.enumerate_adapters_sync()[0]
    device = adapter.request_device_sync()
    print(f"{adapter.info['device']}, {adapter.info['backend_type']}\n")
    print("| Picture | Stays on the GPU, us | Read back and uploaded, us | Ratio |")
    print("| --- | ---: | ---: | ---: |")
    for rows, columns in SIZES:
        frames = FrameLoop(device, rows, columns)
        frames.there()
        drawn = frames.drawn()
        picture = frames.compiled.read_gpu_handle("history")
        assert drawn == picture.tobytes(), "the texture does not hold what the graph computed"
        times = {frames.there: [], frames.by_host: []}
        for draw in times:
            frames.timed(draw, 5)
        for _ in range(args.rounds):
            for draw, item in times.items():
                item.append(frames.timed(draw, args.frames))
        there, back = (statistics.median(item) for item in times.values())
        size = rows * columns * 4 >> 10
        print(f"| {rows} x {columns}, {size} KiB | {there:.0f} | {back:.0f} | {back / there:.1f} |")
        frames.compiled.close()


main()
