import torch
from transformers import AutoModelForImageTextToText
import evenkeel.loop

model = AutoModelForImageTextToText.from_pretrained("./qwen2-vl").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step in evenkeel.Loader("job.yaml", rank=0, num_steps=20):
    loss = evenkeel.loop.forward_backward(step, model)
    optimizer.step()
    optimizer.zero_grad()
    print(step.index, f"{loss.item():.6f}")
