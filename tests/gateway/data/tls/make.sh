#!/bin/sh
# Makes the certificates that tests use; nothing else trusts them. They last a hundred years.
set -eu
cd "$(dirname "$0")"
new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }
authority() {
  new_key "$1.key"
  openssl req -x509 -new -key "$1.key" -out "$1.pem" -subj "/CN=$1" -days 36500
}
certificate() { # name, authority, names
  new_key "$1.key"
  openssl req -new -key "$1.key" -subj "/CN=$1" |
    openssl x509 -req -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -out "$1.pem" -days 36500 -extfile /dev/fd/3 3<<END
subjectAltName=$3
END
}
authority authority
authority stranger
certificate server authority DNS:localhost,IP:127.0.0.1
certificate renewed authority DNS:localhost,IP:127.0.0.1
certificate elsewhere authority DNS:elsewhere.example
rm -f ./*.srl authority.key stranger.key
