"""Compute the tangent kernel of a ReLU network by neural-tangents, in an environment that has it.

    python by_neural_tangents.py PROBLEM.npz KERNEL.npy THREADS

Called by tangent_kernel.py. PROBLEM holds inputs "x" and, by layer, "weight0", "bias0", … Every
implementation of `empirical_ntk_fn` is compiled and run once on the problem itself; then the
fastest one is reported. Prints its time and memory as JSON.
"""

import json
import os
import sys
import time

if __name__ == "__main__":
    # JAX uses as many threads as it may use processors; Linux only.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[3])])

import jax
import jax.numpy as jnp
import neural_tangents as nt
import numpy as np
from measuring import peak_memory


def outputs(parameters: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    """ReLU network with a linear readout: (n, c)."""
    for number, (weight, bias) in enumerate(parameters):
        x = x @ weight.T + bias
        if number + 1 < len(parameters):
            x = jnp.maximum(x, 0)
    return x


def main() -> None:
    """Measure, save the kernel with samples first in its index, and print the result."""
    problem, output, _ = sys.argv[1:]
    data = np.load(problem)
    layers = sum(name.startswith("weight") for name in data)
    parameters = [
        (jnp.array(data[f"weight{i}"]), jnp.array(data[f"bias{i}"])) for i in range(layers)
    ]
    x = jnp.array(data["x"])
    memory = peak_memory()
    found = {}
    for way in nt.NtkImplementation:
        if way == nt.NtkImplementation.AUTO:
            continue
        ntk = nt.empirical_ntk_fn(outputs, trace_axes=(), vmap_axes=0, implementation=way)
        ntk = jax.jit(ntk, static_argnums=(1,))
        ntk(x, None, parameters).block_until_ready()  # compiles
        cpu, start = time.process_time(), time.perf_counter()
        kernel = ntk(x, None, parameters).block_until_ready()  # (n, n, c, c)
        found[way.name] = time.process_time() - cpu, time.perf_counter() - start, kernel
    best = min(found, key=lambda name: found[name][0])
    cpu, seconds, kernel = found[best]
    n, c = kernel.shape[0], kernel.shape[2]
    np.save(output, np.asarray(kernel).transpose(0, 2, 1, 3).reshape(n * c, n * c))
    result = {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_growth_mb": (peak_memory() - memory) / 1e6,
        "implementation": best,
        "versions": f"neural-tangents {nt.__version__} on JAX {jax.__version__}",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
