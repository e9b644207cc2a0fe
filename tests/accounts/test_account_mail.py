"""Password reset, confirmation of addresses and their change: no response reveals whether an address has an account."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from allauth.account.models import EmailAddress
from allauth.account.utils import user_pk_to_url_str
from django.core import mail
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts import pending_address
from apps.accounts.models import NAME_LENGTH_MAX, User
from apps.accounts.pages import mail as account_mail
from apps.accounts.pages.confirmation import ConfirmAddress
from apps.accounts.pages.forms import SignUpForm
from apps.kernel import clock, rate_limits
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from tests.support.accounts.credentials import LOG_IN, PASSWORD

RESET, SIGN_UP, NEW = "/accounts/password/reset", "/accounts/sign-up", "another of good length"
LogIn = Callable[[User], Client]
LAST_MAILS = ("account_closed", "account_erased")
"""Their account exists no longer: they have no link."""


def delivered() -> list[Any]:
    """Deliver the scheduled mails; return them."""
    mail.outbox.clear()
    outbox.deliver()
    return list(mail.outbox)


def link_in(message: Any) -> str:
    found = re.search(r"http://localhost:8000(/\S+)", message.body)
    assert found is not None, message.body
    return found[1]


def without_values(response: Any, email: str) -> str:
    """Return the page without the address and the random token of its form."""
    return re.sub(r'value="[^"]*"', "", response.content.decode().replace(email, ""))


@pytest.fixture(autouse=True)
def _site_url(settings: Any) -> None:
    settings.SITE_URL = "http://localhost:8000"


def test_a_lost_password_is_replaced_by_a_link_in_a_mail(browser: Client, ann: User, log_in: LogIn) -> None:
    elsewhere = log_in(ann)
    assert browser.post(RESET, {"email": "Ann@Example.org"}).url == f"{RESET}/sent"
    (message,) = delivered()
    assert message.to == ["ann@example.org"]
    link = link_in(message)
    form_url = browser.get(link).url
    assert "set-password" in form_url, "the key is not in the address of the form"
    assert browser.get(form_url).status_code == 200
    weak = browser.post(form_url, {"password1": "12345678", "password2": "12345678"})
    assert weak.status_code == 200
    assert browser.post(form_url, {"password1": NEW, "password2": NEW}).url == f"{RESET}/done"
    assert elsewhere.get("/accounts/").status_code == 302, "all sessions have ended"
    assert "used before" in Client().get(link).content.decode()
    assert browser.post(LOG_IN, {"username": ann.username, "password": NEW}).status_code == 302
    (notice,) = delivered()
    assert "was changed" in notice.subject


def test_the_response_is_the_same_with_and_without_an_account(ann: User) -> None:
    known, unknown = (Client().post(RESET, {"email": email}) for email in ("ann@example.org", "bob@example.org"))
    assert (known.status_code, known.url, known.content) == (unknown.status_code, unknown.url, unknown.content)
    assert known.headers.keys() == unknown.headers.keys()
    assert known.cookies.keys() == unknown.cookies.keys()


def test_a_scheduled_mail_has_no_secret(browser: Client, ann: User) -> None:
    browser.post(RESET, {"email": "ann@example.org"})
    body = OutboxMessage.objects.get().body
    assert body.pop("origin"), "a digest of the network"
    assert body == {"mail": "password_reset_key", "email": "ann@example.org", "user": ann.pk}


@pytest.mark.parametrize("email", ["a@[127.0.0.1]", "a@localhost", "a@mail.internal"])
def test_no_mail_goes_to_the_mail_servers_own_network(browser: Client, db: None, email: str) -> None:
    for page, data in ((RESET, {"email": email}), (SIGN_UP, {"username": email, "password": PASSWORD})):
        assert "Enter a valid email address." in browser.post(page, data).content.decode()
    assert not OutboxMessage.objects.exists()


def test_an_inactive_account_gets_no_link(browser: Client, ann: User) -> None:
    User.objects.update(is_active=False)
    browser.post(RESET, {"email": "ann@example.org"})
    assert not [one for one in delivered() if "password/reset/" in one.body and "-" in link_in(one)]


def test_one_address_gets_few_mails(browser: Client, ann: User) -> None:
    for _ in range(20):
        assert browser.post(RESET, {"email": "ann@example.org"}, REMOTE_ADDR="203.0.113.9").status_code == 302
    assert len(delivered()) == 5


def test_all_processes_together_send_few_mails_to_one_account(browser: Client, ann: User) -> None:
    """Each new count stands for another process of the site, each address for another client."""
    for number in range(40):
        rate_limits.forget_everything()
        browser.post(RESET, {"email": "ann@example.org"}, REMOTE_ADDR=f"203.0.113.{number}")
    assert len(delivered()) == 15, "what one process allows in an hour"


NETWORK, ELSEWHERE = "203.0.113.9", "198.51.100.7"


def reset_from_new_process(email: str, address: str) -> None:
    rate_limits.forget_everything()
    assert Client().post(RESET, {"email": email}, REMOTE_ADDR=address).url == f"{RESET}/sent"


@pytest.mark.parametrize("forget", [rate_limits.forget_everything, lambda: None], ids=["processes", "one process"])
def test_a_stranger_who_enters_spellings_of_a_mailbox_keeps_no_link_from_its_owner(
    ann: User, settings: Any, forget: Callable[[], None]
) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    stranger, owner = (Client(headers={"sec-fetch-site": "same-origin"}) for _ in range(2))
    for number in range(41):
        for name in ("ann", "bob"):
            forget()
            stranger.post(RESET, {"email": f"{name}+{number}@example.org"}, REMOTE_ADDR=NETWORK)
    to_strangers = delivered()
    owner.post(RESET, {"email": ann.email}, REMOTE_ADDR=ELSEWHERE)
    (message,) = delivered()
    assert "set-password" in owner.get(link_in(message)).url
    owner.post(SIGN_UP, {"username": "bob@example.org", "password": PASSWORD}, REMOTE_ADDR=ELSEWHERE)
    (message,) = delivered()
    assert "/email/confirm/" in link_in(message)
    assert len(to_strangers) == 2 * 3, "a fifth of what a mailbox gets"


@pytest.mark.parametrize("forget", [rate_limits.forget_everything, lambda: None], ids=["processes", "one process"])
def test_one_network_leaves_room_for_the_requests_of_another(ann: User, forget: Callable[[], None]) -> None:
    """The stranger asks for links of the account itself, and then for an IPv6 network's links from all its /64s."""
    networks: tuple[tuple[str, list[str]], ...] = (
        ("an address", [NETWORK] * 20),
        ("a /48", [f"2001:db8:1:{number:x}::1" for number in range(20)]),
    )
    for name, addresses in networks:
        for address in addresses:
            forget()
            Client().post(RESET, {"email": ann.email}, REMOTE_ADDR=address)
        assert len(delivered()) == 5, name
    for _ in range(5):
        Client().post(RESET, {"email": ann.email}, REMOTE_ADDR=ELSEWHERE)
    assert len(delivered()) == 5


def test_mails_without_a_link_use_nothing_of_the_cap_of_links(ann: User, settings: Any) -> None:
    """From many networks, so that only the caps of the mailbox apply."""
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    for number in range(40):
        rate_limits.forget_everything()
        address = f"203.0.113.{number}"
        if number % 2:
            reset_from_new_process(f"ann+{number}@example.org", address)
        else:
            Client().post(SIGN_UP, {"username": ann.email, "password": NEW}, REMOTE_ADDR=address)
    assert len(delivered()) == 3
    for number in range(40):
        reset_from_new_process(ann.email, f"198.51.100.{number}")
    assert len(delivered()) == 15, "a few networks together have the whole cap, and no more"


def test_an_exempt_network_has_the_whole_cap(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "subject", lambda address: "")
    for _ in range(20):
        reset_from_new_process(ann.email, NETWORK)
    assert len(delivered()) == 15


@pytest.mark.parametrize("addresses", [[NETWORK] * 20, [f"203.0.113.{number}" for number in range(20)]])
def test_a_request_beyond_a_cap_schedules_as_much_with_and_without_an_account(ann: User, addresses: list[str]) -> None:
    """Otherwise the time of a response would reveal which cap counts, and so whether there is an account."""
    seen = []
    for email in (ann.email, "bob@example.org"):
        with CaptureQueriesContext(connection) as queries:
            for address in addresses:
                reset_from_new_process(email, address)
        # allauth's search for accounts comes before.
        seen.append([one["sql"].partition("\n")[0] for one in queries if one["sql"].startswith("--")])
    assert seen[0] == seen[1]
    assert any("Inserts" in sql for sql in seen[0])
    assert len(delivered()) == (5 if len(set(addresses)) == 1 else 15) + 3


def test_a_flood_of_mails_does_not_suppress_the_notice_of_a_change(ann: User, log_in: LogIn, browser: Client) -> None:
    owner = log_in(ann)
    for number in range(20):
        browser.post(RESET, {"email": "ann@example.org"}, REMOTE_ADDR=f"203.0.113.{number}")
    delivered()
    owner.post("/accounts/password", {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW})
    (notice,) = delivered()
    assert "was changed" in notice.subject
    owner.post("/accounts/erase", {"is_sure": "on"})
    (notice,) = delivered()
    assert "was erased" in notice.subject


def test_a_link_names_the_site_and_not_the_requests_host(browser: Client, ann: User, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["evil.example", "testserver"]
    browser.post(RESET, {"email": "ann@example.org"}, headers={"host": "evil.example"})
    (message,) = delivered()
    assert "evil.example" not in message.body


@pytest.mark.parametrize("name", sorted(account_mail._MAILS))
def test_a_mail_has_a_subject_text_and_html_with_its_link(ann: User, name: str) -> None:
    EmailAddress.objects.update(verified=False)
    with transaction.atomic():
        body = {"mail": name, "email": ann.email, "user": None if name in LAST_MAILS else ann.pk}
        outbox.publish(account_mail.SEND_MAIL, ann.email, body)
    (message,) = delivered()
    ((html, kind),) = message.alternatives
    assert kind == "text/html"
    assert message.subject in html
    for text in (message.body, html):
        assert "http://localhost:8000" in text
        assert "{" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL), "no value is missing"
    assert name in (*LAST_MAILS, "email_changed") or link_in(message) in html


def test_a_sign_up_works_without_reading_mail_and_sends_a_confirmation(browser: Client, db: None) -> None:
    response = browser.post(SIGN_UP, {"username": "ann@example.org", "password": PASSWORD, "next": "/tickets/"})
    assert response.url == "/tickets/"
    assert "Not confirmed" in browser.get("/accounts/").content.decode()
    (message,) = delivered()
    link = link_in(message)
    assert browser.get(link).status_code == 200
    assert not EmailAddress.objects.get().verified, "opening a link changes nothing: mail programs do it"
    assert browser.post(link).url == "/accounts/"
    assert EmailAddress.objects.get().verified
    assert "used before" in browser.get(link).content.decode()


def test_a_required_confirmation_comes_before_the_log_in_and_hides_accounts(ann: User, settings: Any) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    new, known = (Client(headers={"sec-fetch-site": "same-origin"}) for _ in range(2))
    responses = [
        browser.post(SIGN_UP, {"username": email, "password": PASSWORD})
        for browser, email in ((new, "bob@example.org"), (known, "ann@example.org"))
    ]
    assert [response.url for response in responses] == ["/accounts/email/sent"] * 2
    assert [browser.session.get("_auth_user_id") for browser in (new, known)] == [None, None]
    pages = [browser.get("/accounts/email/sent").content for browser in (new, known)]
    assert pages[0] == pages[1].replace(b"ann@", b"bob@")
    to_bob, to_ann = sorted(delivered(), key=lambda one: one.to, reverse=True)
    assert "You already have an account" in to_ann.body
    new.post(link_in(to_bob))
    assert new.post(LOG_IN, {"username": "bob@example.org", "password": PASSWORD}).url == "/"


def test_a_log_in_after_a_sign_up_does_not_reveal_whether_the_address_had_an_account(ann: User, settings: Any) -> None:
    """A stranger signs up with another person's address and then logs in with the password of that sign-up."""
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    seen = []
    for email in ("bob@example.org", ann.email):
        stranger = Client(headers={"sec-fetch-site": "same-origin"})
        credentials = {"username": email, "password": NEW}
        signed_up = stranger.post(SIGN_UP, credentials)
        with CaptureQueriesContext(connection) as log_in_queries:
            logged_in = stranger.post(LOG_IN, credentials)
        tokens = stranger.post("/api/auth/token", credentials, content_type="application/json")
        assert "not confirmed yet" in logged_in.content.decode()
        seen.append([
            (signed_up.status_code, signed_up.url, sorted(signed_up.cookies)),
            (logged_in.status_code, without_values(logged_in, email), sorted(logged_in.cookies)),
            (tokens.status_code, tokens.content),
            [one["sql"].partition("WHERE")[0] for one in log_in_queries],
            without_values(stranger.get("/accounts/email/sent"), email),
        ])  # fmt: skip
    assert seen[0] == seen[1]


def test_two_sign_ups_at_once_do_not_reveal_whether_the_address_had_an_account(
    browser: Client, ann: User, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second sign-up finds no account, then the first one commits."""
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    monkeypatch.setattr(SignUpForm, "validate_unique_email", lambda form, value: value)
    assert browser.post(SIGN_UP, {"username": ann.email, "password": NEW}).url == "/accounts/email/sent"


def test_the_longest_address_is_signed_up_and_reset(settings: Any, db: None) -> None:
    email = f"{'a' * 64}@{'b' * 63}.{'c' * 17}.org"
    assert len(email) == NAME_LENGTH_MAX
    browser = Client(headers={"sec-fetch-site": "same-origin"})
    assert browser.post(SIGN_UP, {"username": email, "password": PASSWORD}).status_code == 302
    delivered()
    assert Client().post(RESET, {"email": email}).status_code == 302
    assert [message.to for message in delivered()] == [[email]]


def test_an_address_that_is_longer_in_small_letters_gets_no_account(browser: Client, db: None) -> None:
    email = "a@" + ".".join(["\u0130" * 31] * 4) + ".com"
    page = browser.post(SIGN_UP, {"username": email, "password": PASSWORD})
    assert page.status_code == 200
    assert "Enter a valid email address." in page.content.decode()
    assert not User.objects.exists()


def test_a_password_reset_confirms_the_address(settings: Any, db: None) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    browser = Client(headers={"sec-fetch-site": "same-origin"})
    browser.post(SIGN_UP, {"username": "bob@example.org", "password": PASSWORD})
    delivered()
    browser.post(RESET, {"email": "bob@example.org"})
    form_url = browser.get(link_in(delivered()[0])).url
    assert not EmailAddress.objects.get().verified
    assert browser.post(form_url, {"password1": NEW, "password2": NEW}).url == f"{RESET}/done"
    assert EmailAddress.objects.get().verified
    assert browser.post(LOG_IN, {"username": "bob@example.org", "password": NEW}).url == "/"


def test_a_reset_link_is_not_sent_to_a_former_address(browser: Client, ann: User) -> None:
    browser.post(RESET, {"email": ann.email})
    User.objects.update(email="new@example.org", username="new@example.org")
    assert delivered() == []


@pytest.mark.parametrize("change", ["log-in", "pending address", "log-out everywhere", "another account's password"])
def test_a_reset_link_stays_valid_whatever_a_thief_of_the_password_does(
    browser: Client, ann: User, chief: User, log_in: LogIn, change: str
) -> None:
    browser.post(RESET, {"email": ann.email})
    link = link_in(delivered()[0])
    match change:
        case "log-in":
            log_in(ann)
        case "pending address":
            log_in(ann).post("/accounts/email", {"email": "thief@example.org"})
        case "log-out everywhere":
            log_in(ann).post("/accounts/log-out-everywhere")
        case _:
            chief.set_password(NEW)
            chief.save()
    assert browser.get(link).status_code == 302


@pytest.mark.parametrize(
    "fields",
    [{"password": "!"}, {"email": "new@example.org", "username": "new@example.org"}, {"is_active": False}, {}],
    ids=["password", "address", "deactivation", "time"],
)
def test_a_reset_link_ends(browser: Client, ann: User, settings: Any, fields: dict[str, Any]) -> None:
    browser.post(RESET, {"email": ann.email})
    link = link_in(delivered()[0])
    form_url = browser.get(link).url
    if fields:
        User.objects.update(**fields)
    else:
        settings.PASSWORD_RESET_TIMEOUT = -1
    assert "used before" in Client().get(link).content.decode()
    assert browser.post(form_url, {"password1": NEW, "password2": NEW}).status_code == 200, "nor in an open form"
    assert not User.objects.get().check_password(NEW)


def test_a_reset_link_of_another_account_does_not_work(browser: Client, ann: User, chief: User) -> None:
    browser.post(RESET, {"email": ann.email})
    link = link_in(delivered()[0])
    stranger = link.replace(f"/{user_pk_to_url_str(ann)}-", f"/{user_pk_to_url_str(chief)}-")
    assert stranger != link
    assert "used before" in browser.get(stranger).content.decode()


def test_a_logged_in_account_confirms_its_password_before_its_address(ann: User, log_in: LogIn, settings: Any) -> None:
    """Its address was not required to be confirmed when it logged in."""
    EmailAddress.objects.all().delete()
    browser = log_in(ann)
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    response = browser.post("/accounts/confirm?next=/accounts/", {"password": PASSWORD})
    assert (response.status_code, response.url) == (302, "/accounts/")


def test_staff_need_no_confirmed_address(chief: User, log_in: LogIn, settings: Any) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    assert log_in(chief).get("/admin/").status_code == 200


def test_an_address_changes_once_its_link_is_opened(ann: User, log_in: LogIn) -> None:
    browser = log_in(ann)
    assert browser.post("/accounts/email", {"email": "New@Example.org"}).url == "/accounts/"
    assert User.objects.get().username == "ann@example.org"
    assert "new@example.org is not confirmed yet" in browser.get("/accounts/").content.decode()
    (message,) = delivered()
    assert message.to == ["new@example.org"]
    assert browser.post(link_in(message)).url == "/accounts/"
    user = User.objects.get()
    assert (user.username, user.email) == ("new@example.org", "new@example.org")
    notices = sorted(delivered(), key=lambda one: str(one.to))
    assert [one.to for one in notices] == [["ann@example.org"], ["new@example.org"]], "both are notified"
    assert "/accounts/password/reset" not in notices[0].body, "the former address cannot reset the password"
    assert "new@" not in notices[0].body, "the former mailbox may be another person's"
    assert Client().post(LOG_IN, {"username": "new@example.org", "password": PASSWORD}).status_code == 302


STRANGER = "mallory@example.org"


def confirm(browser: Client, link: str, **fields: str) -> Any:
    page = browser.get(link)
    assert page.status_code == 200
    return browser.post(link, fields)


def test_a_change_of_address_is_confirmed_only_by_the_account_that_asked(
    ann: User, log_in: LogIn, browser: Client
) -> None:
    """A stranger asks for the address of a buyer: one careless click must not move the buyer's orders."""
    stranger = log_in(User.objects.create_user(STRANGER, password=PASSWORD))
    stranger.post("/accounts/email", {"email": "victim@example.org"})
    (message,) = delivered()
    link = link_in(message)
    ((html, _),) = message.alternatives
    for text in (message.body, html, browser.get(link).content.decode()):
        assert "m…y@example.org" in text, "it names the account that asks"
        assert "mallory" not in text
        assert str(clock.now().year) in text
        assert "This was not me" in text
    other = log_in(ann)
    for visitor in (browser, other):
        assert confirm(visitor, link, password=PASSWORD).status_code == 200
    assert "another account" in other.get(link).content.decode(), "the link ends no session"
    assert f'href="/accounts/log-in?next={quote(link)}"' in browser.get(link).content.decode()
    assert User.objects.get(username=STRANGER).email == STRANGER
    assert confirm(stranger, link).url == "/accounts/"
    assert User.objects.get(email="victim@example.org").username == "victim@example.org"


def test_a_sign_up_with_another_persons_address_is_confirmed_only_with_its_password(browser: Client, db: None) -> None:
    stranger = Client(headers={"sec-fetch-site": "same-origin"})
    stranger.post(SIGN_UP, {"username": "victim@example.org", "password": NEW})
    link = link_in(delivered()[0])
    for fields in ({}, {"password": PASSWORD}):
        assert confirm(browser, link, **fields).status_code == 200
        assert not EmailAddress.objects.get().verified
    assert confirm(browser, link, password=NEW).url == "/"
    assert EmailAddress.objects.get().verified
    assert "_auth_user_id" in browser.session, "its password logs in, too"


@pytest.mark.parametrize("is_required", [True, False])
@pytest.mark.parametrize("email", ["new@example.org", "bob@example.org"])
def test_the_owner_of_a_mailbox_ends_a_request_to_confirm_it(
    browser: Client, log_in: LogIn, settings: Any, db: None, email: str, is_required: bool
) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory" if is_required else "optional"
    stranger = Client(headers={"sec-fetch-site": "same-origin"})
    stranger.post(SIGN_UP, {"username": "bob@example.org", "password": PASSWORD})
    bob = User.objects.get()
    if email != bob.email:
        EmailAddress.objects.filter(user=bob).update(verified=True)
        stranger = log_in(bob)
        delivered()
        stranger.post("/accounts/email", {"email": email})
    link = link_in(delivered()[0])
    ended = confirm(browser, link, decline="1")
    assert "was ended" in ended.content.decode()
    assert "does not work any more" in browser.get(link).content.decode()
    assert stranger.post(link, {"password": PASSWORD}).status_code == 404
    assert EmailAddress.objects.filter(email=email, verified=True).count() == 0
    assert EmailAddress.objects.filter(user=bob, email=bob.email).count() == 1, "not as if staff had created it"


def test_a_confirmation_does_not_restore_an_address_that_was_declined_in_the_meantime(
    ann: User, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account's browser has read the address, then the owner of the mailbox ends the request."""
    browser = log_in(ann)
    browser.post("/accounts/email", {"email": "victim@example.org"})
    (message,) = delivered()
    read = ConfirmAddress.get_object

    def read_before_the_end(view: ConfirmAddress, queryset: Any = None) -> Any:
        found = read(view, queryset)
        pending_address.decline(found.email_address)
        return found

    monkeypatch.setattr(ConfirmAddress, "get_object", read_before_the_end)
    browser.post(link_in(message))
    assert User.objects.get().email == ann.email
    assert not EmailAddress.objects.filter(email="victim@example.org").exists()


def test_an_address_of_another_account_cannot_be_taken_over(ann: User, log_in: LogIn) -> None:
    User.objects.create_user("bob@example.org", password=PASSWORD)
    browser = log_in(ann)
    assert browser.post("/accounts/email", {"email": "bob@example.org"}).url == "/accounts/"
    (message,) = delivered()
    browser.post(link_in(message))
    assert User.objects.get(pk=ann.pk).email == "ann@example.org"
    assert not EmailAddress.objects.get(email="bob@example.org").verified
    assert "another account uses it" in browser.get("/accounts/").content.decode()


@pytest.mark.parametrize("how", ["reset", "change", "log-out everywhere", "set by staff"])
def test_a_pending_change_ends_when_the_owner_ends_all_sessions(
    ann: User, chief: User, log_in: LogIn, browser: Client, how: str
) -> None:
    """Otherwise a thief of the password could move the account to an own mailbox, after the owner has changed it."""
    log_in(ann).post("/accounts/email", {"email": "thief@example.org"})
    (message,) = delivered()
    match how:
        case "reset":
            browser.post(RESET, {"email": ann.email})
            form_url = browser.get(link_in(delivered()[0])).url
            response = browser.post(form_url, {"password1": NEW, "password2": NEW})
        case "change":
            fields = {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW}
            response = log_in(ann).post("/accounts/password", fields)
        case "log-out everywhere":
            response = log_in(ann).post("/accounts/log-out-everywhere")
        case _:
            url = f"/admin/accounts/user/{ann.pk}/password/"
            response = log_in(chief).post(url, {"password1": NEW, "password2": NEW, "usable_password": "true"})
    assert response.status_code == 302, response.content
    Client().post(link_in(message))
    assert User.objects.get(pk=ann.pk).email == "ann@example.org"


def test_a_pending_change_gives_no_access_to_mails_of_its_address(ann: User, log_in: LogIn, browser: Client) -> None:
    """An account that has yet to confirm an address gets no reset link sent there."""
    log_in(ann).post("/accounts/email", {"email": "victim@example.org"})
    delivered()
    browser.post(RESET, {"email": "victim@example.org"})
    (message,) = delivered()
    assert "has no account" in message.body


@pytest.mark.parametrize("path", ["/accounts/password/reset/1-x", "/accounts/password/reset/ZZZZZZZZZZZZZZZZZZ-a-b",
                                  "/accounts/email/confirm/x", "/accounts/email/confirm/a:b:c"])  # fmt: skip
def test_a_made_up_link_is_refused(browser: Client, ann: User, path: str) -> None:
    assert browser.get(path).status_code in (200, 302)
    assert browser.post(path, {"password1": NEW, "password2": NEW}).status_code in (200, 404)
    assert User.objects.get().check_password(PASSWORD)


@pytest.mark.parametrize(
    "path",
    ["/accounts/", "/accounts/email", "/accounts/password", "/accounts/confirm", "/accounts/second-factor/app",
     "/accounts/second-factor/passkeys/add", "/accounts/second-factor/recovery-codes"],
)  # fmt: skip
def test_the_accounts_pages_need_a_log_in(browser: Client, db: None, path: str) -> None:
    response = browser.get(path)
    assert response.status_code == 302
    assert response.url.startswith(LOG_IN)
