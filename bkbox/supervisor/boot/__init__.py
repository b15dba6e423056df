"""The start: configuration, cookies, disks, phase one."""
