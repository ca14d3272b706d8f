"""One model as several compiled graphs: for several devices, sizes, shapes, or keys of the caller's."""
