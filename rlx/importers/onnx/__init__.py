"""ONNX models as graphs: the file's bytes (source), its messages (wire, schema, tensors), the walk (load), the operators (ops)."""
