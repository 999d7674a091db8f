"""What a device can do by its maker's data sheet, and the bounds that follow: no program is faster than these."""

from __future__ import annotations

from plainformer.faults import refuse
from plainformer.records import dataclass


@dataclass(frozen=True)
class Device:
    """One accelerator. A peak is that of dense products in bfloat16 (float16 where it has no bfloat16)."""

    name: str
    memory: float  # bytes
    flops: float  # operations a second
    bandwidth: float  # bytes a second, from its own memory
    watts: float | None = None


# Each row's figures stand in what its maker published, named above it; where that prints the sparse peak, its half.
# Memory as sold: 80 GB is taken as 80e9 bytes, a little less than what a driver shows. GeForce peaks are those with
# float32 sums, as training needs them.
DEVICES = {
    device.name: device
    for device in (
        # NVIDIA: T4 data sheet, Turing whitepaper (320 GB/s: 256 bits at 10 Gb/s); V100 data sheet (SXM2)
        Device("t4", 16e9, 65e12, 320e9, 70),
        Device("v100-32gb", 32e9, 125e12, 900e9, 300),
        # NVIDIA: A10 data sheet; A100 data sheets (SXM)
        Device("a10", 24e9, 125e12, 600e9, 150),
        Device("a100-40gb", 40e9, 312e12, 1555e9, 400),
        Device("a100-80gb", 80e9, 312e12, 2039e9, 400),
        # NVIDIA: L4 data sheet (242 sparse), L40S data sheet (362.05)
        Device("l4", 24e9, 121e12, 300e9, 72),
        Device("l40s", 48e9, 362.05e12, 864e9, 350),
        # NVIDIA: whitepapers of GA102, Ada and RTX Blackwell
        Device("rtx3090", 24e9, 71e12, 936e9, 350),
        Device("rtx4090", 24e9, 165.2e12, 1008e9, 450),
        Device("rtx5090", 32e9, 209.5e12, 1792e9, 575),
        # NVIDIA: H100 data sheet (PCIe: 1,513 sparse; SXM: 1,979 sparse), H200 data sheet (SXM)
        Device("h100-pcie", 80e9, 756.5e12, 2000e9, 350),
        Device("h100", 80e9, 989.5e12, 3350e9, 700),
        Device("h200", 141e9, 989.5e12, 4800e9, 700),
        # NVIDIA: HGX and DGX B200 data sheets (8 x 180 GB; 4,500 sparse each at 1,000 W)
        Device("b200", 180e9, 2250e12, 8000e9, 1000),
        # AMD: Instinct data sheets (MI250X: at most 560 W)
        Device("mi250x", 128e9, 383e12, 3277e9, 560),
        Device("mi300x", 192e9, 1307.4e12, 5300e9, 750),
        Device("mi325x", 256e9, 1307.4e12, 6000e9, 1000),
        # Google: Cloud TPU documentation, a page for each version; it says the power of v4 alone (at most 192 W)
        Device("tpu-v4", 32e9, 275e12, 1200e9, 192),
        Device("tpu-v5e", 16e9, 197e12, 819e9),
        Device("tpu-v5p", 95e9, 459e12, 2765e9),
    )
}


def device(text: str) -> Device:
    """A device by its name in DEVICES, or by three numbers "80e9,989e12,3.35e12": bytes, operations and bytes a
    second. Refuses other names with the nearest, and numbers that are not above 0."""
    name = text.strip().lower().replace(" ", "-").replace("_", "-")
    if name in DEVICES:
        return DEVICES[name]
    if "," not in text:
        from difflib import get_close_matches

        near = get_close_matches(name, DEVICES, n=3, cutoff=0.4) or DEVICES
        hint = f"near to it: {', '.join(near)}; or BYTES,FLOPS,BANDWIDTH as 80e9,989e12,3.35e12"
        raise refuse("--device", text, "no such device here", hint)
    numbers = []
    for word in text.split(","):
        try:
            numbers.append(float(word))
        except ValueError:
            raise refuse("--device", text, f"{word!r} is not a number", "BYTES,FLOPS,BANDWIDTH") from None
    if len(numbers) != 3 or not all(0 < n < float("inf") for n in numbers):
        raise refuse("--device", text, "must be three numbers above 0", "BYTES,FLOPS,BANDWIDTH")
    return Device(text, *numbers)


def needed(n_bytes: float, one: Device) -> int:
    """How many such devices hold that many bytes, evenly split and with nothing else on them."""
    return max(1, -int(-n_bytes // one.memory))
