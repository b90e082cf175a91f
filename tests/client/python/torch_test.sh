#!/bin/bash
# Trains through kaon.Optimizer where torch is installed. Copies of CUDA tensors run over a stand-in for torch.cuda.
set -euo pipefail

# shellcheck source=tests/skipped.sh
source tests/skipped.sh
/usr/bin/python3 -c 'import torch' 2>/dev/null ||
  skipped "torch is not installed for /usr/bin/python3: deploy/install_packages.sh --torch installs Debian's"
/usr/bin/python3 tests/client/python/stage_with_fake_cuda.py -v
exec /usr/bin/python3 tests/client/python/train_with_torch.py -v
