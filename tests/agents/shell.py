"""What the framework agents share: the tool that they give their model."""

import subprocess


def run_shell(command: str) -> str:
    """Runs a shell command in the working directory, and returns what it prints."""
    ran = subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True, timeout=30)
    return ran.stdout + ran.stderr
