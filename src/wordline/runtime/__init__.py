"""The hardware abstraction: devices behind drivers, memory, executables, queues and timelines."""

from wordline.runtime.device import Device, Executable, HostBuffer
from wordline.runtime.device_interface import Completion, ExecuteFlag
from wordline.runtime.driver import DRIVERS, DeviceInfo, list_devices, open_device
from wordline.runtime.queue import Queue
from wordline.runtime.resident import Residency, ResidentModel
from wordline.runtime.specification import DeviceSpec, parse_device
from wordline.runtime.timeline import Point, Scheduler, Semaphore

__all__ = [
    "DRIVERS",
    "Completion",
    "Device",
    "DeviceInfo",
    "DeviceSpec",
    "Executable",
    "ExecuteFlag",
    "HostBuffer",
    "Point",
    "Queue",
    "Residency",
    "ResidentModel",
    "Scheduler",
    "Semaphore",
    "list_devices",
    "open_device",
    "parse_device",
]
