# The client in the sandbox: calls for ever, three at once, and notes each answer that was whole. bash -c THIS bash RUN
run=$1

call() { # WORKER ROUTE LAST-LINE BODY
    if ! curl -sS -N --fail -D "/tmp/$1.head" -o "/tmp/$1.body" -H 'content-type: application/json' -d "$4" \
        "$OPENAI_BASE_URL/$2" 2>/dev/null; then
        sleep 0.02
    elif grep -qF "$3" "/tmp/$1.body"; then
        sed -n "s/^x-litellm-call-id: \(.*\)\r\$/\1 $run/p" "/tmp/$1.head" >>/out/whole
    fi
}

work() { # WORKER
    while :; do
        call "$1" chat/completions 'data: [DONE]' \
            '{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true}'
        call "$1" responses '"completed"' '{"model":"m","input":"hello"}'
        call "$1" messages 'event: message_stop' \
            '{"model":"m","max_tokens":64,"messages":[{"role":"user","content":"hello"}],"stream":true}'
    done
}

for worker in 1 2 3; do
    work "$worker" &
done
wait
