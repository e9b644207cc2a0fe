"""Settings of django-allauth that no deployment changes. Our adapters and forms limit attempts and mails."""

ACCOUNT_ADAPTER = "apps.accounts.pages.adapter.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"email", "username"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_CHANGE_EMAIL = True
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_RATE_LIMITS = False
ACCOUNT_PASSWORD_RESET_TOKEN_GENERATOR = "apps.accounts.passwords.reset_links.ResetTokenGenerator"  # noqa: S105
ACCOUNT_FORMS = {
    "login": "apps.accounts.pages.forms.LogInForm",
    "signup": "apps.accounts.pages.forms.SignUpForm",
    "change_password": "apps.accounts.pages.forms.ChangePasswordForm",
    "set_password": "apps.accounts.pages.forms.SetPasswordForm",
    "reset_password": "apps.accounts.pages.forms.ResetPasswordForm",
    "reset_password_from_key": "apps.accounts.pages.forms.ResetPasswordKeyForm",
    "reauthenticate": "apps.accounts.pages.forms.ReauthenticateForm",
}
ACCOUNT_REAUTHENTICATION_REQUIRED = True
MFA_ADAPTER = "apps.accounts.second_factor.adapter.MFAAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "Fairgate"
MFA_TOTP_TOLERANCE = 1
MFA_ALLOW_UNVERIFIED_EMAIL = True  # `apps.accounts.second_factor.enrollment` has its own rule.
MFA_RATE_LIMITS = False
MFA_FORMS = {
    "authenticate": "apps.accounts.second_factor.forms.AuthenticateForm",
    "reauthenticate": "apps.accounts.second_factor.forms.ReauthenticateForm",
    "activate_totp": "apps.accounts.second_factor.forms.ActivateTOTPForm",
    "add_webauthn": "apps.accounts.second_factor.forms.AddWebAuthnForm",
    "edit_webauthn": "apps.accounts.second_factor.forms.EditWebAuthnForm",
    "authenticate_webauthn": "apps.accounts.second_factor.forms.AuthenticateWebAuthnForm",
    "login_webauthn": "apps.accounts.second_factor.forms.LoginWebAuthnForm",
    "reauthenticate_webauthn": "apps.accounts.second_factor.forms.ReauthenticateWebAuthnForm",
}
