"""The part of the clients that the blocking and the asynchronous one share: all but the sending itself."""
