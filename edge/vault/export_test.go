package vault

import "context"

// LogIn is Client.logIn without its token.
func (c *Client) LogIn(ctx context.Context, role, jwt string) error {
	_, err := c.logIn(ctx, "", role, jwt)
	return err
}
