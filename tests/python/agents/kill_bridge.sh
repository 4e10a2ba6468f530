#!/bin/bash
# Kills the bridge to the model, and tells if it is still there afterwards to tell anything.
echo up
for process in /proc/[0-9]*; do
    [[ $(cat "$process/comm" 2>/dev/null) != socat ]] || kill -KILL "${process#/proc/}"
done
sleep 60
echo survived
