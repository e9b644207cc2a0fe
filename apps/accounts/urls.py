"""URLs of accounts. allauth reverses its own names (account_…, mfa_…)."""

from allauth.account import views as account
from allauth.mfa.base import views as mfa
from allauth.mfa.recovery_codes import views as recovery_codes
from allauth.mfa.totp import views as totp
from allauth.mfa.webauthn import views as webauthn
from django.urls import path, re_path

from apps.accounts.pages import confirmation, personal_data, views
from apps.accounts.second_factor.enrollment import ActivateApp, confirmed_address_required
from apps.accounts.second_factor.passkey_log_in import LogInWithPasskey
from apps.accounts.second_factor.passkey_names import RenamePasskey
from apps.accounts.tokens import api_views

page_urls = [
    path("accounts/", views.AccountPage.as_view(), name="account"),
    path("accounts/sign-up", views.SignUp.as_view(), name="sign_up"),
    path("accounts/sign-up", views.SignUp.as_view(), name="account_signup"),
    path("accounts/log-in", views.LogIn.as_view(), name="log_in"),
    path("accounts/log-in", views.LogIn.as_view(), name="account_login"),
    path("accounts/log-in/code", mfa.authenticate, name="mfa_authenticate"),
    path("accounts/log-in/passkey", LogInWithPasskey.as_view(), name="mfa_login_webauthn"),
    path("accounts/log-in/inactive", account.account_inactive, name="account_inactive"),
    path("accounts/log-out", views.LogOut.as_view(), name="log_out"),
    path("accounts/log-out", views.LogOut.as_view(), name="account_logout"),
    path("accounts/log-out-everywhere", views.log_out_everywhere, name="log_out_everywhere"),
    path("accounts/sessions/<int:session_id>/log-out", views.log_out_device, name="log_out_device"),
    path("accounts/data.json", personal_data.download, name="account_data"),
    path("accounts/erase", personal_data.erase, name="account_erase"),
    path("accounts/confirm", account.reauthenticate, name="account_reauthenticate"),
    path("accounts/confirm/code", mfa.reauthenticate, name="mfa_reauthenticate"),
    path("accounts/confirm/passkey", webauthn.reauthenticate_webauthn, name="mfa_reauthenticate_webauthn"),
    path("accounts/email", views.ChangeEmail.as_view(), name="account_email"),
    path("accounts/email/sent", account.email_verification_sent, name="account_email_verification_sent"),
    re_path(
        r"^accounts/email/confirm/(?P<key>[-:\w]+)$",
        confirmation.ConfirmAddress.as_view(),
        name="account_confirm_email",
    ),
    path("accounts/password", account.password_change, name="account_change_password"),
    path("accounts/password/set", account.password_set, name="account_set_password"),
    path("accounts/password/reset", account.password_reset, name="account_reset_password"),
    path("accounts/password/reset/sent", account.password_reset_done, name="account_reset_password_done"),
    path(
        "accounts/password/reset/done",
        account.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
    re_path(
        r"^accounts/password/reset/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>[-\w]+)$",
        account.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path("accounts/second-factor", views.AccountPage.as_view(), name="mfa_index"),
    path("accounts/second-factor/app", confirmed_address_required(ActivateApp.as_view()), name="mfa_activate_totp"),
    path("accounts/second-factor/app/remove", totp.deactivate_totp, name="mfa_deactivate_totp"),
    path("accounts/second-factor/passkeys", views.AccountPage.as_view(), name="mfa_list_webauthn"),
    path(
        "accounts/second-factor/passkeys/add",
        confirmed_address_required(webauthn.add_webauthn),
        name="mfa_add_webauthn",
    ),
    path("accounts/second-factor/passkeys/<int:pk>/rename", RenamePasskey.as_view(), name="mfa_edit_webauthn"),
    path("accounts/second-factor/passkeys/<int:pk>/remove", webauthn.remove_webauthn, name="mfa_remove_webauthn"),
    path("accounts/second-factor/recovery-codes", recovery_codes.view_recovery_codes, name="mfa_view_recovery_codes"),
    path(
        "accounts/second-factor/recovery-codes/new",
        recovery_codes.generate_recovery_codes,
        name="mfa_generate_recovery_codes",
    ),
    path(
        "accounts/second-factor/recovery-codes/download",
        recovery_codes.download_recovery_codes,
        name="mfa_download_recovery_codes",
    ),
]

api_urls = [
    path("auth/token", api_views.Tokens.as_view(), name="token"),
    path("auth/token/refresh", api_views.TokensRefreshed.as_view(), name="token_refresh"),
]
