# What scripts of batch jobs do: pipes, traps, background jobs, coprocesses, time-outs.
set -u
trap 'echo leaves with $?' EXIT
trap 'echo user signal' USR1
kill -USR1 $$
for signal in TERM HUP INT QUIT ABRT SEGV KILL PIPE; do
  bash -c "kill -$signal \$\$" 2>/dev/null
  echo "$signal: $?"
done
(sleep 10 & echo $! > child; wait) & job=$!
until [ -s child ]; do sleep 0.01; done
kill "$(cat child)"; wait $job; echo "job: $?"
seq 1 1000 | sort -R | sort -n | sha256sum
yes | head -1; echo "${PIPESTATUS[@]}"
coproc CAT { cat; }
echo through >&"${CAT[1]}"; read -r line <&"${CAT[0]}"; echo "$line"
eval "exec ${CAT[1]}>&-"; wait
timeout 0.2 sleep 10; echo "timeout: $?"
cat <(echo substituted) <<< here
ls /nowhere 2>/dev/null; echo "ls: $?"
( ulimit -n 20; true; echo "limited: $?" )
nohup sh -c 'kill -HUP $$; echo still here' 2>/dev/null
find . -maxdepth 1 -name child -print0 | xargs -0 -n1 basename
env -i sh -c 'echo "clean: ${LD_PRELOAD:-}"'
set -m; sleep 5 & kill -STOP %1; jobs -s | wc -l; kill -KILL %1; wait 2>/dev/null
exit 9
