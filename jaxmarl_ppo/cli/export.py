"""`jaxmarl-ppo export`: a policy of a run in one file, for JAX alone or for ONNX."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jaxmarl_ppo.cli import session

if TYPE_CHECKING:
    from jaxmarl_ppo.deploy.policy import Policy

Platform = Literal["cpu", "cuda", "rocm", "tpu"]


@dataclass(frozen=True)
class ExportOptions(session.RunOptions):
    """Export a policy to one file that acts without its run, checked against the original.

    Attributes:
        policy: name of the policy, such as `bob`, or `past@it150` for a snapshot; None if there is
            only one, or only one that controls `agent`.
        agent: agent that the policy is to control; None for all that it can control.
        format: format of the file: `jax` for JAX alone, or `onnx` for ONNX Runtime and others,
            without JAX (extra `onnx`).
        out: new file; None for `<policy>.jaxexport` or `<policy>.onnx`.
        platforms: platforms that the file is to run on; has no effect on ONNX.
    """

    policy: str | None = None
    agent: str | None = None
    format: Literal["jax", "onnx"] = "jax"
    out: Path | None = None
    platforms: tuple[Platform, ...] = ("cpu", "cuda", "tpu")


def main(args: Sequence[str], prog: str = "jaxmarl-ppo export") -> int:
    """Export a policy and print its path.

    Raises:
        ValueError: If options are inconsistent, or a run cannot be read.
    """
    options = session.parse(ExportOptions, args, prog)
    to_onnx = options.format == "onnx"
    if to_onnx and options.platforms != ExportOptions.platforms:
        raise ValueError("--platforms has no effect with --format onnx; drop it")
    run_dir = options.open_run(prog)
    from jaxmarl_ppo.deploy.jax_export import check_new_file
    from jaxmarl_ppo.deploy.onnx_file import check_extras
    from jaxmarl_ppo.deploy.policy import Policy
    from jaxmarl_ppo.machine.files import path_part

    # Before anything that takes time.
    if to_onnx:
        check_extras()
    if options.out is not None:
        if (options.out.suffix.lower() == ".onnx") != to_onnx:
            raise ValueError(
                f"--out {options.out} does not fit --format {options.format}: files end in .onnx "
                "with --format onnx, and only then; change one of them"
            )
        check_new_file(options.out)
    policy = Policy.load(
        run_dir,
        options.policy,
        options.agent,
        env=options.env,
        allow_imports=options.allow_import,
    )
    name = policy.signature.policy
    suffix = "onnx" if to_onnx else "jaxexport"
    path = Path(f"{path_part(name)}.{suffix}") if options.out is None else options.out
    if to_onnx:
        _export_onnx(policy, path)
        return 0
    policy.export(path, options.platforms)
    session.show(
        f"policy {name}, which plays {', '.join(policy.agents)}; checked: it acts as before"
    )
    size = f"{path.stat().st_size / 1000:,.0f} kB"
    session.show(f"saved in {path} ({size}, for {', '.join(options.platforms)})")
    session.show(f"next, in Python: jaxmarl_ppo.load_exported({str(path)!r})")
    return 0


def _export_onnx(policy: "Policy", path: Path) -> None:
    """Export to ONNX, and print what was compared."""
    check = policy.export_onnx(path)
    greatest = ", ".join(f"{name} {value:.1e}" for name, value in check.differences.items())
    session.show(
        f"policy {policy.signature.policy}, which plays {', '.join(policy.agents)}; checked on "
        f"{check.num_rows:,} random inputs: it acts as before"
    )
    ties = f"; ties decided differently: {check.num_ties}" if check.num_ties else ""
    session.show(f"greatest differences: {greatest}{ties}")
    session.show(f"saved in {path} ({path.stat().st_size / 1000:,.0f} kB)")
    session.show(f"next, in Python: onnxruntime.InferenceSession({str(path)!r})")
