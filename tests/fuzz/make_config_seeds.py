"""Writes the seeds of model_config_fuzz to model_config_seeds/: files like those
of Triton's users. They are committed and change only when this script does."""

import pathlib

FOLDER = pathlib.Path(__file__).parent / "model_config_seeds"

INPUTS = '''
input [
  { name: "x" data_type: TYPE_FP32 dims: [ 3 ] },
  { name: "words" data_type: TYPE_STRING dims: [ -1 ] }
]
'''
OUTPUT = 'output { name: "y" data_type: TYPE_INT64 dims: [ 1 ] }\n'

SEEDS = {
    "empty": "",
    "named": 'name: "m" platform: "onnxruntime_onnx"\n',
    "of_another_name": 'name: "other"\n',
    "backend": 'backend: "onnxruntime" default_model_filename: "model.onnx"\n',
    "another_backend": 'backend: "python"\n',
    "batch": "max_batch_size: 8" + INPUTS + OUTPUT,
    "no_batch": '''
max_batch_size: 0
input { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] }
input { name: "words" data_type: TYPE_STRING dims: [ -1, -1 ] }
output { name: "class" data_type: TYPE_INT64 dims: [ -1 ] }
output { name: "y" data_type: TYPE_INT64 dims: [ -1 ] }
''',
    "some_inputs": 'input { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] }\n',
    "wrong_type": 'input { name: "x" data_type: TYPE_FP16 dims: [ -1, 3 ] }\n',
    "wrong_dims": 'input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }\n',
    "no_such_input": 'input { name: "z" data_type: TYPE_FP32 dims: [ 1 ] }\n',
    "no_such_output": 'output { name: "z" data_type: TYPE_FP32 dims: [ 1 ] }\n',
    "input_twice": INPUTS + INPUTS,
    "reshape": '''
input { name: "x" data_type: TYPE_FP32 dims: [ 9 ]
        reshape: { shape: [ 3, 3 ] } }
''',
    "label": 'output { name: "y" label_filename: "labels.txt" dims: 1 }\n',
    "formats": '''
max_batch_size: 4
input { name: "x" format: FORMAT_NCHW dims: [ 3 ] optional: true }
input { name: "words" allow_ragged_batch: true is_shape_tensor: true }
''',
    "versions_latest": "version_policy: { latest { num_versions: 2 } }\n",
    "versions_all": "version_policy: { all { } }\n",
    "versions_specific": "version_policy { specific { versions: [ 1, 3 ] } }\n",
    "versions_wrong": "version_policy { specific { versions: [ 0, -1 ] } }\n",
    "instances": '''
instance_group [
  { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] },
  { count: 1 kind: KIND_CPU name: "beside" host_policy: "p" }
]
''',
    "instance_cpu": "instance_group { kind: KIND_CPU }\n",
    "instance_model": "instance_group { kind: KIND_MODEL passive: true }\n",
    "instance_rate": '''
instance_group { rate_limiter { resources { name: "r" count: 2 global: true }
                                priority: 2 } profile: "1" }
''',
    "dynamic_batching": '''
max_batch_size: 16
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100
  preserve_ordering: true
  priority_levels: 2
  default_priority_level: 1
  default_queue_policy { timeout_action: DELAY max_queue_size: 8
                         default_timeout_microseconds: 5
                         allow_timeout_override: true }
  priority_queue_policy { key: 1 value { max_queue_size: 3 } }
}
''',
    "optimization": '''
optimization {
  graph { level: 1 } priority: PRIORITY_MAX
  cuda { graphs: true busy_wait_events: true output_copy_stream: true
         graph_spec { batch_size: 1
                      input { key: "x" value { dim: [ 1, 3 ] } }
                      graph_lower_bound { batch_size: 1 } } }
  execution_accelerators {
    gpu_execution_accelerator { name: "tensorrt"
      parameters { key: "precision_mode" value: "FP16" } }
    cpu_execution_accelerator { name: "openvino" } }
  input_pinned_memory { enable: true } output_pinned_memory { enable: false }
  gather_kernel_buffer_threshold: 5 eager_batching: true
}
''',
    "parameters": '''
parameters { key: "a" value: { string_value: "b" } }
metric_tags { key: "team" value: "one" }
cc_model_filenames { key: "9.0" value: "m.onnx" }
''',
    "warmup": '''
model_warmup { name: "w" batch_size: 1 count: 2
  inputs { key: "x" value { data_type: TYPE_FP32 dims: 3 zero_data: true } }
  inputs { key: "words" value { random_data: true } } }
''',
    "decoupled": "model_transaction_policy { decoupled: true }\n",
    "cache": "response_cache { enable: true }\nruntime: \"x\"\n",
    "sequences": "sequence_batching { max_sequence_idle_microseconds: 5 }\n",
    "ensemble": 'ensemble_scheduling { step { model_name: "a" } }\n',
    "unknown_field": "no_such_field: 1\n",
    "number": "max_batch_size: -1\n",
    "huge": "max_batch_size: 99999999999999999999\n",
    "comment": '# one\nname: "m" # two\n',
    "not_closed": 'input { name: "x"\n',
    "deep": "optimization { cuda { graph_spec { input { value { dim: 1 }\n",
    "quoted": 'name: "m\\x00\\xff"\n',
}


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, text in SEEDS.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
