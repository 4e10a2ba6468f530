#!/bin/bash
# An agent that is a shell script: so many calls in turn, each with what came of the one before: loop.sh COUNT.
# Prints LiteLLM's id of each call, then the last answer.
set -euo pipefail

said=$(jq -r '.[-1].content' /workspace/.sluice/messages.json)
for ((turn = 0; turn < $1; turn++)); do
    jq -n --arg model "$SLUICE_MODEL" --arg said "$said" '{$model, messages: [{role: "user", content: $said}]}' |
        curl -sS --fail-with-body -D /tmp/head -H 'content-type: application/json' --data-binary @- \
            "$OPENAI_BASE_URL/chat/completions" >/tmp/body
    sed -n 's/^x-litellm-call-id: \(.*\)\r$/\1/p' /tmp/head
    said=$(jq -r '.choices[0].message.content' /tmp/body)
done
echo "$said"
