"""Fails if a log holds a line of a private key, or a tensor value in any form in which a program may print it.

check_logs.py KEY_DIRECTORY VALUE[,VALUE...] LOG...: values of fp32, each as the eight hexadecimal digits of its
bits. First checks whether it finds these when they are there.
"""

import base64
import os
import struct
import sys

# Fewer digits prove too little, because a log has other numbers, too.
FEWEST_DIGITS = 6


def value_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def escaped(data, byte):
    """Returns the escaped form of protobuf's text and absl::CHexEscape."""
    return "".join(chr(one) if 32 <= one < 127 else byte.format(one) for one in data)


def forms_of(bits):
    """Returns the texts to look for, in lower case, by the name of the form."""
    value = value_of(bits)
    data = struct.pack("<I", bits)
    forms = {"hexadecimal": f"{bits:08x}", "hexadecimal of the bytes": data.hex(),
             "spaced hexadecimal": " ".join(f"{one:02x}" for one in data),
             "integer": str(bits),
             # The value is 0x1.bd81bcp-6, and any digits may follow.
             "hexadecimal float": float(value).hex().split(".")[1].split("p")[0].rstrip("0"),
             "octal escapes": escaped(data, "\\{:03o}"), "hexadecimal escapes": escaped(data, "\\x{:02x}"),
             "bytes": data.decode("latin-1")}
    # The bytes of three elements have these letters in this order, at any start within a tensor of them.
    forms["base64"] = base64.b64encode(data * 3).decode()
    for digits in range(FEWEST_DIGITS, 18):
        forms[f"%.{digits}g"] = f"{value:.{digits}g}"
        forms[f"%.{digits}e"] = f"{value:.{digits - 1}e}".split("e")[0]
        forms[f"%.{digits}f"] = f"{value:.{digits}f}"
    return {name: form.lower() for name, form in forms.items()}


def secrets_of(directory):
    """Returns the secrets of each key file: its lines, and its bytes as hexadecimal digits."""
    secrets = {}
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".key"):
            continue
        with open(os.path.join(directory, name), encoding="ascii") as file:
            lines = [line.strip() for line in file if line.strip() and not line.startswith("-----")]
        der = base64.b64decode("".join(lines)).hex()
        secrets[name] = lines + [der[at:at + 32] for at in range(0, len(der) - 31, 32)]
    return secrets


def leaks(text, secrets, values):
    """Returns the secrets that the bytes of a log contain."""
    # Latin-1 has one character for each byte.
    text = text.decode("latin-1")
    lower = text.lower()
    found = [f"a line of {name}" for name, parts in secrets.items() if any(part in text or part in lower for part in parts)]
    for bits in values:
        found += [f"{value_of(bits):g} as {name}" for name, form in forms_of(bits).items() if form in lower]
    return found


def check_itself(secrets, values):
    """Checks that each secret and each form is found in a line that has it."""
    problems = []
    for bits in values:
        for name, form in forms_of(bits).items():
            if not leaks(f"W1123 a.cc:1] it is {form}: so".encode("latin-1"), {}, [bits]):
                problems.append(f"{name} {form!r} is not found")
    for name, parts in secrets.items():
        problems += [f"{part} of {name} is not found" for part in parts if not leaks(f"I1123 {part},".encode(), secrets, [])]
    if leaks(b"I1123 16:40:05.027191 98765 push_intake.cc:69] step 2719 0.0272 1234.5", secrets, values):
        problems.append("finds what is not there")
    return problems


def main():
    directory, values, logs = sys.argv[1], [int(bits, 16) for bits in sys.argv[2].split(",")], sys.argv[3:]
    secrets = secrets_of(directory)
    problems = check_itself(secrets, values)
    if len(secrets) < 4:
        problems.append(f"only {len(secrets)} keys in {directory}")
    for log in logs:
        with open(log, "rb") as file:
            text = file.read()
        print(f"{os.path.basename(log)}: {len(text)} bytes")
        if not text:
            problems.append(f"{log} is empty")
        problems += [f"{log}: {leak}" for leak in leaks(text, secrets, values)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
