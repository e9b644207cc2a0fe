"""A passkey in software."""

import hashlib
import json
from typing import Any

from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData, CollectedClientData

from apps.accounts.models import User

HOST = "testserver"
FLAGS = AuthenticatorData.FLAG
_PRESENT = FLAGS.UP | FLAGS.UV


ORIGIN = f"https://{HOST}"


class Passkey:
    """A passkey of the user on a device; `add` adds it to the account without the pages."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.id = hashlib.sha256(user.username.encode()).digest()
        self._key = ec.generate_private_key(ec.SECP256R1())

    def add(self, *, is_passwordless: bool = True) -> "Passkey":
        credential = {**self._create("AAAA", ORIGIN), "passwordless": is_passwordless}
        Authenticator.objects.create(
            user=self.user, type=Authenticator.Type.WEBAUTHN, data={"name": "Passkey", "credential": credential}
        )
        return self

    def create(self, creation_options: Any, origin: str = ORIGIN) -> str:
        """Return the credential that a browser posts to add the passkey, on a page of this origin."""
        return json.dumps(self._create(creation_options["publicKey"]["challenge"], origin))

    def _create(self, challenge: str, origin: str) -> dict[str, Any]:
        data = AttestedCredentialData.create(bytes(16), self.id, ES256.from_cryptography_key(self._key.public_key()))
        attestation = AttestationObject.create("none", _authenticator_data(_PRESENT | FLAGS.AT, data), {})
        response = {
            "clientDataJSON": websafe_encode(_client_data("webauthn.create", challenge, origin)),
            "attestationObject": websafe_encode(bytes(attestation)),
        }
        return {**self._named(response), "clientExtensionResults": {"credProps": {"rk": True}}}

    def answer(self, request_options: Any, origin: str = ORIGIN) -> str:
        """Return the credential that a browser posts for these options, on a page of this origin."""
        client_data = _client_data("webauthn.get", request_options["publicKey"]["challenge"], origin)
        data = bytes(_authenticator_data(_PRESENT))
        signature = self._key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(hashes.SHA256()))
        response = {
            "clientDataJSON": websafe_encode(client_data),
            "authenticatorData": websafe_encode(data),
            "signature": websafe_encode(signature),
            "userHandle": websafe_encode(user_pk_to_url_str(self.user).encode()),
        }
        return json.dumps({**self._named(response), "clientExtensionResults": {}})

    def _named(self, response: dict[str, str]) -> dict[str, Any]:
        name = websafe_encode(self.id)
        return {"id": name, "rawId": name, "type": "public-key", "response": response}


def _authenticator_data(flags: Any, credential: Any = b"") -> AuthenticatorData:
    return AuthenticatorData.create(hashlib.sha256(HOST.encode()).digest(), flags, 1, credential)


def _client_data(kind: str, challenge: str, origin: str) -> bytes:
    return bytes(CollectedClientData.create(kind, challenge, origin))
