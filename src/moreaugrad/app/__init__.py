"""The web page of `moreaugrad serve`: photos in, jobs for one solver thread, maps out. Needs `moreaugrad[serve]`."""
