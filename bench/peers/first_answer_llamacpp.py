"""What a user writes for a first answer with llama-cpp-python: a text in, the next token out."""

import os
import sys

from llama_cpp import Llama

model = Llama(sys.argv[1], n_threads=int(os.environ["OMP_NUM_THREADS"]), verbose=False)
print(model.create_completion(sys.argv[2], max_tokens=1, temperature=0)["choices"][0]["text"], flush=True)
