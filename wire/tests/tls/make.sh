#!/bin/sh
# Certificates of the tests: an authority, two servers and a client. Run it to make new ones.
set -eu
cd "$(dirname "$0")"
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }
key authority
openssl req -x509 -new -key authority.key -days 36500 -subj "/CN=pilotlight test authority" -out authority.pem
for name in first second client; do
    key "$name"
    openssl req -new -key "$name.key" -subj "/CN=$name" -out "$name.csr"
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' >extensions
    openssl x509 -req -in "$name.csr" -CA authority.pem -CAkey authority.key -CAcreateserial \
        -days 36500 -extfile extensions -out "$name.pem"
done
rm -f ./*.csr ./*.srl extensions authority.key
