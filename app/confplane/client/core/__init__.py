"""The code that the blocking and the asynchronous client share: everything except the senders."""
